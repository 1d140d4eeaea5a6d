#include "memory.h"

#include "interface.h"
#include "report.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <sys/mman.h>

namespace emulator::memory {
namespace {

// As the driver aligns.
constexpr size_t alignment = 256;
constexpr unsigned char untouched = 0xff;

struct Allocation {
    size_t bytes;
    unsigned char *mapped;
    size_t mapped_bytes;
};
std::map<uintptr_t, Allocation> live;
std::deque<std::pair<uintptr_t, size_t>> freed;
size_t used = 0;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

const std::pair<const uintptr_t, Allocation> *around(uintptr_t address) {
    auto after = live.upper_bound(address);
    if (after == live.begin()) return nullptr;
    auto &candidate = *std::prev(after);
    return address - candidate.first < candidate.second.bytes ? &candidate : nullptr;
}

// The bytes between the inaccessible pages that belong to no allocation must be as they were.
void check(uintptr_t start, const Allocation &allocation) {
    auto scan = [&](const unsigned char *from, const unsigned char *to, const char *side) {
        if (from == to || (*from == untouched && memcmp(from, from + 1, to - from - 1) == 0)) return;
        for (auto at = from; at < to; ++at)
            if (*at != untouched)
                fail("a write to the " + std::string(side) + " an allocation of " + std::to_string(allocation.bytes) + " bytes, " +
                     std::to_string((intptr_t)((uintptr_t)at - start)) + " bytes from its start");
    };
    const unsigned char *first = allocation.mapped + page_size, *begin = (const unsigned char *)start;
    // A stray write falls next to what it was meant for: looking at more would only cost time.
    scan((size_t)(begin - first) > alignment ? begin - alignment : first, begin, "bytes before");
    scan(begin + allocation.bytes, allocation.mapped + allocation.mapped_bytes - page_size, "bytes past the end of");
}

}  // namespace

size_t total() {
    static const size_t bytes = [] {
        const char *megabytes = getenv("NEURONA_EMULATED_MEMORY_MB");
        return (megabytes ? strtoull(megabytes, nullptr, 10) : 1024ull) << 20;
    }();
    return bytes;
}

size_t available() { return total() - used; }

void *allocate(size_t bytes) {
    size_t held = round_up(bytes, alignment);
    if (held > available() || held < bytes) return nullptr;
    size_t mapped_bytes = round_up(held, page_size) + 2 * page_size;
    auto mapped = (unsigned char *)mmap(nullptr, mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto first = mapped + page_size, last = mapped + mapped_bytes - page_size;
    if (mprotect(first, last - first, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapped, mapped_bytes);
        return nullptr;
    }
    memset(first, untouched, last - first);
    auto start = last - held;
    live[(uintptr_t)start] = {bytes, mapped, mapped_bytes};
    used += held;
    return start;
}

bool release(void *address) {
    auto found = live.find((uintptr_t)address);
    if (found == live.end()) return false;
    check(found->first, found->second);
    munmap(found->second.mapped, found->second.mapped_bytes);
    used -= round_up(found->second.bytes, alignment);
    freed.push_front({found->first, found->second.bytes});
    if (freed.size() > 4096) freed.pop_back();
    live.erase(found);
    return true;
}

bool contains(const void *address, size_t bytes) {
    auto found = around((uintptr_t)address);
    return found && (uintptr_t)address - found->first + bytes <= found->second.bytes;
}

bool find(const void *address, void **start, size_t *bytes) {
    auto found = around((uintptr_t)address);
    if (!found) return false;
    *start = (void *)found->first, *bytes = found->second.bytes;
    return true;
}

void check() {
    for (auto &[start, allocation] : live) check(start, allocation);
}

std::string describe(const void *address) {
    auto at = (uintptr_t)address;
    for (auto &[start, allocation] : live) {
        auto mapped = (uintptr_t)allocation.mapped;
        if (at < mapped || at >= mapped + allocation.mapped_bytes) continue;
        std::string size = " an allocation of " + std::to_string(allocation.bytes) + " bytes";
        if (at < start) return std::to_string(start - at) + " bytes before" + size;
        if (at >= start + allocation.bytes) return std::to_string(at - start - allocation.bytes) + " bytes past the end of" + size;
        return "offset " + std::to_string(at - start) + " of" + size;
    }
    for (auto &[start, bytes] : freed)
        if (at >= start && at < start + bytes)
            return "offset " + std::to_string(at - start) + " of an allocation of " + std::to_string(bytes) + " bytes that was freed";
    return "in no allocation";
}

}  // namespace emulator::memory
