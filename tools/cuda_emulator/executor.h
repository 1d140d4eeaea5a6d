// Runs the blocks of a launch one after another, every thread of a block on a stack of its own.
#pragma once
#include "interface.h"

#include <string>
#include <vector>

namespace emulator {

struct LoadedModule {
    void *handle = nullptr;
    int file = -1;
    const Module *module = nullptr;
    // Static shared memory: start and size of every variable.
    std::vector<std::pair<unsigned char *, size_t>> shared_variables;
};

struct Grid {
    Index blocks, threads;
    unsigned dynamic_shared;
};

extern const Runtime runtime_services;
void execute(const LoadedModule &module, const Kernel &kernel, const Grid &grid, void *const *arguments);
// Where kernel code stands now, a line for messages; empty when none runs.
std::string running_position();

// What lies at an address that kernel code touched, for messages.
std::string describe_address(const void *address);

}  // namespace emulator
