// What a compiled kernel module and the emulated driver know of each other. Compiled into both sides, so it includes nothing.
#pragma once

namespace emulator {

struct Index {
    unsigned x, y, z;
};

// Where the running thread stands. One thread runs at a time, so a module has one, which the scheduler keeps up to date.
struct Position {
    Index thread, block, block_size, grid_size;
};

// Called once for an operation of a warp, when its last lane has arrived. `payloads` holds what each of the 32 lanes handed in,
// null for lanes that take no part.
typedef void (*Combine)(void *const *payloads, unsigned mask);

struct SourceLocation {
    const char *file;
    unsigned line, column;
};

// Services the driver offers to kernel code.
struct Runtime {
    // Waits until `threads` threads (0: the whole block) have come to the barrier; gives the number of true predicates.
    int (*wait_at_barrier)(unsigned barrier, unsigned threads, int predicate);
    void (*arrive_at_barrier)(unsigned barrier, unsigned threads);
    void (*warp_operation)(unsigned mask, void *payload, Combine combine, const char *name);
    unsigned (*lane)();
    unsigned (*live_lanes)();
    void (*fail)(const char *message, const SourceLocation *where);
};

struct Kernel {
    const char *name;
    void (*invoke)(void *const *arguments);
    const unsigned *argument_sizes;
    unsigned arguments;
    unsigned max_threads;
};

constexpr unsigned page_size = 4096;
// The most that any supported GPU lets one block have, and then a page that is never accessible.
constexpr unsigned dynamic_shared_limit = 227 * 1024;
constexpr unsigned dynamic_shared_room = (dynamic_shared_limit + page_size - 1) / page_size * page_size + page_size;

struct Module {
    // Differs when the emulator was rebuilt from other sources: a module from a stale cache is then refused.
    const char *stamp;
    Position *position;
    const Runtime **runtime;
    const Kernel *kernels;
    unsigned kernel_count;
    unsigned char *dynamic_shared;
};

}  // namespace emulator
