// Device memory: host memory between inaccessible pages, watched for writes past its ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator::memory {

size_t total();
size_t available();

// Null when the device has no such room left. Fresh memory holds all ones, which read as not-a-number.
void *allocate(size_t bytes);
// False when no allocation starts at the address.
bool release(void *address);
// Whether the whole range lies in one allocation.
bool contains(const void *address, size_t bytes);
// The start and size of the allocation around the address.
bool find(const void *address, void **start, size_t *bytes);
// Ends the process when anything was written just outside an allocation.
void check();
// How an address relates to what is or was allocated, for messages.
std::string describe(const void *address);

}  // namespace emulator::memory
