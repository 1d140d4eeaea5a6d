#include "executor.h"

#include "context.h"
#include "faults.h"
#include "memory.h"
#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch_stack
.hidden emulator_switch_stack
.type emulator_switch_stack, @function
emulator_switch_stack:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulator_switch_stack, . - emulator_switch_stack
)");
#endif

namespace emulator {
namespace {

constexpr unsigned most_threads = 1024, warp_lanes = 32, barriers = 16;
constexpr size_t stack_bytes = 128 << 10;
constexpr unsigned char untouched = 0xff;

enum class State : unsigned char { fresh, ready, at_barrier, in_warp_operation, finished };

struct Thread {
    StackContext context;
    void *stack;
    State state;
    unsigned barrier;
    int barrier_result;
    unsigned mask;
    void *payload;
    Combine combine;
    const char *operation;
};

struct Warp {
    unsigned live, waiting;
};

struct Barrier {
    unsigned expected, arrived;
    int predicates;
    std::vector<unsigned> waiting;
};

// The state of the block that runs. Launches take turns (the driver holds a lock), so there is one.
struct Block {
    const LoadedModule *module;
    const Kernel *kernel;
    const Grid *grid;
    void *const *arguments;
    unsigned threads, running, finished;
    bool ended;
    Thread thread[most_threads];
    Warp warp[most_threads / warp_lanes];
    Barrier barrier[barriers];
    unsigned queue[most_threads], queue_head, queue_length;
    StackContext scheduler;
    std::vector<void *> free_stacks;
};
Block block;

void *make_stack() {
    if (!block.free_stacks.empty()) {
        void *stack = block.free_stacks.back();
        block.free_stacks.pop_back();
        return stack;
    }
    auto mapped = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    // An overflow meets an inaccessible page, not the next stack.
    if (mapped == MAP_FAILED || mprotect(mapped, page_size, PROT_NONE) != 0) fail("no memory for the stacks of threads");
    return mapped;
}

void make_ready(unsigned thread) {
    block.queue[(block.queue_head + block.queue_length++) % most_threads] = thread;
    if (block.thread[thread].state != State::fresh) block.thread[thread].state = State::ready;
}

Index index_of(unsigned thread) {
    Index size = block.grid->threads;
    return {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

unsigned take_next() {
    unsigned thread = block.queue[block.queue_head];
    block.queue_head = (block.queue_head + 1) % most_threads;
    --block.queue_length;
    block.running = thread;
    block.module->module->position->thread = index_of(thread);
    return thread;
}

// Lanes that have returned no longer take part, as on the GPU.
void try_warp_operation(Warp &warp, unsigned first_thread, unsigned mask) {
    unsigned needed = mask & warp.live;
    if ((warp.waiting & needed) != needed || needed == 0) return;
    void *payloads[warp_lanes] = {};
    Combine combine = nullptr;
    for (unsigned lane = 0; lane < warp_lanes; ++lane) {
        if (!(needed >> lane & 1)) continue;
        Thread &thread = block.thread[first_thread + lane];
        if (!combine) combine = thread.combine;
        if (thread.mask != mask || thread.combine != combine) return;
        payloads[lane] = thread.payload;
    }
    combine(payloads, needed);
    warp.waiting &= ~needed;
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
        if ((needed >> lane & 1) && first_thread + lane != block.running) make_ready(first_thread + lane);
    if (block.running >= first_thread && block.running < first_thread + warp_lanes && (needed >> (block.running - first_thread) & 1))
        block.thread[block.running].state = State::ready;
}

void finish_running() {
    unsigned thread = block.running, first = thread / warp_lanes * warp_lanes;
    Warp &warp = block.warp[thread / warp_lanes];
    block.thread[thread].state = State::finished;
    ++block.finished;
    warp.live &= ~(1u << (thread - first));
    for (unsigned lane = 0; warp.waiting && lane < warp_lanes; ++lane)
        if (warp.waiting >> lane & 1) try_warp_operation(warp, first, block.thread[first + lane].mask);
}

void run_threads() {
    for (;;) {
        Thread &mine = block.thread[block.running];
        void *stack = mine.stack;
        block.kernel->invoke(block.arguments);
        finish_running();
        // A thread that never waited leaves its stack to the next one, without a switch.
        if (block.queue_length && block.thread[block.queue[block.queue_head]].state == State::fresh) {
            Thread &next = block.thread[take_next()];
            next.stack = stack;
            next.state = State::ready;
            continue;
        }
        block.free_stacks.push_back(stack);
        switch_to(mine.context, block.scheduler);
    }
}

void wait() {
    Thread &mine = block.thread[block.running];
    switch_to(mine.context, block.scheduler);
}

std::string ranges(const std::vector<unsigned> &threads) {
    std::string text;
    for (size_t i = 0; i < threads.size();) {
        size_t last = i;
        while (last + 1 < threads.size() && threads[last + 1] == threads[last] + 1) ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(threads[i]);
        if (last > i) text += "-" + std::to_string(threads[last]);
        i = last + 1;
    }
    return text;
}

[[noreturn]] void report_deadlock() {
    std::vector<unsigned> finished;
    std::vector<std::pair<std::string, std::vector<unsigned>>> groups;
    for (unsigned thread = 0; thread < block.threads; ++thread) {
        const Thread &it = block.thread[thread];
        std::string what;
        if (it.state == State::finished) {
            finished.push_back(thread);
            continue;
        }
        if (it.state == State::at_barrier) {
            const Barrier &barrier = block.barrier[it.barrier];
            what = it.barrier ? "barrier " + std::to_string(it.barrier) : "__syncthreads";
            what += " (" + std::to_string(barrier.arrived) + " of " + std::to_string(barrier.expected) + " came)";
        } else {
            char mask[32];
            snprintf(mask, sizeof mask, " with mask 0x%08x", it.mask);
            what = it.operation + std::string(mask);
        }
        auto group = groups.begin();
        while (group != groups.end() && group->first != what) ++group;
        if (group == groups.end()) group = groups.insert(group, {what, {}});
        group->second.push_back(thread);
    }
    std::string message = "deadlock: the threads of a block wait for others that never come";
    for (auto &[what, threads] : groups) message += "\n  waiting at " + what + ": threads " + ranges(threads);
    if (!finished.empty()) message += "\n  returned from the kernel: threads " + ranges(finished);
    fail(message);
}

// Counts the thread in; true when it was the last to come, and then those that wait go on.
bool come_to_barrier(unsigned which, unsigned threads, int predicate, int &result) {
    if (which >= barriers) fail("barrier " + std::to_string(which) + ": there are " + std::to_string(barriers));
    Barrier &barrier = block.barrier[which];
    if (threads == 0) threads = block.threads;
    if (barrier.arrived && barrier.expected != threads) fail("threads came to one barrier with different counts");
    barrier.expected = threads;
    barrier.predicates += predicate != 0;
    if (++barrier.arrived < threads) return false;
    result = barrier.predicates;
    for (unsigned thread : barrier.waiting) {
        block.thread[thread].barrier_result = result;
        make_ready(thread);
    }
    barrier.waiting.clear();
    barrier.arrived = 0;
    barrier.predicates = 0;
    return true;
}

int wait_at_barrier(unsigned which, unsigned threads, int predicate) {
    Thread &mine = block.thread[block.running];
    int result = 0;
    if (come_to_barrier(which, threads, predicate, result)) return result;
    block.barrier[which].waiting.push_back(block.running);
    mine.state = State::at_barrier;
    mine.barrier = which;
    wait();
    return mine.barrier_result;
}

void arrive_at_barrier(unsigned which, unsigned threads) {
    int result = 0;
    come_to_barrier(which, threads, 0, result);
}

void warp_operation(unsigned mask, void *payload, Combine combine, const char *name) {
    unsigned first = block.running / warp_lanes * warp_lanes, lane = block.running - first;
    if (!(mask >> lane & 1)) fail(std::string(name) + ": the mask leaves out the thread that calls");
    Warp &warp = block.warp[block.running / warp_lanes];
    Thread &mine = block.thread[block.running];
    mine.mask = mask;
    mine.payload = payload;
    mine.combine = combine;
    mine.operation = name;
    mine.state = State::in_warp_operation;
    warp.waiting |= 1u << lane;
    try_warp_operation(warp, first, mask);
    if (mine.state == State::in_warp_operation) wait();
}

unsigned lane() { return block.running % warp_lanes; }
unsigned live_lanes() { return block.warp[block.running / warp_lanes].live; }

void fail_at(const char *message, const SourceLocation *where) {
    fail(where ? std::string(message) + " at " + where->file + ":" + std::to_string(where->line) : std::string(message));
}

void run_block(Index at) {
    const Module &module = *block.module->module;
    module.position->block = at;
    for (auto [start, bytes] : block.module->shared_variables) memset(start, untouched, bytes);
    // Filled to the end of its last accessible page: what lies past the size asked for must stay as it is.
    unsigned room = (block.grid->dynamic_shared + page_size - 1) / page_size * page_size;
    memset(module.dynamic_shared, untouched, room);

    unsigned warps = (block.threads + warp_lanes - 1) / warp_lanes;
    for (unsigned warp = 0; warp < warps; ++warp) {
        unsigned lanes = block.threads - warp * warp_lanes;
        block.warp[warp] = {lanes >= warp_lanes ? ~0u : (1u << lanes) - 1, 0};
    }
    for (Barrier &barrier : block.barrier) barrier.arrived = 0, barrier.predicates = 0, barrier.waiting.clear();
    block.queue_head = block.queue_length = block.finished = 0;
    // Every other block starts from its last thread, so that a missing barrier shows whichever way the data flows.
    bool backwards = (at.x + at.y + at.z) & 1;
    for (unsigned i = 0; i < block.threads; ++i) {
        unsigned thread = backwards ? block.threads - 1 - i : i;
        block.thread[thread].state = State::fresh;
        make_ready(thread);
    }
    while (block.finished < block.threads) {
        if (block.queue_length == 0) report_deadlock();
        Thread &next = block.thread[take_next()];
        if (next.state == State::fresh) {
            next.state = State::ready;
            next.stack = make_stack();
            start_at(next.context, next.stack, stack_bytes, run_threads);
        }
        switch_to(block.scheduler, next.context);
    }
    for (unsigned byte = block.grid->dynamic_shared; byte < room; ++byte)
        if (module.dynamic_shared[byte] != untouched)
            fail("a write past the end of dynamic shared memory: byte " + std::to_string(byte) + " of " +
                 std::to_string(block.grid->dynamic_shared));
}

}  // namespace

const Runtime runtime_services = {wait_at_barrier, arrive_at_barrier, warp_operation, lane, live_lanes, fail_at};

std::string running_position() {
    if (!block.kernel) return "";
    if (block.ended) return std::string("kernel ") + block.kernel->name + ", found when it had ended";
    Index thread = index_of(block.running), at = block.module->module->position->block;
    auto text = [](Index i) { return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")"; };
    return std::string("kernel ") + block.kernel->name + ", block " + text(at) + " of " + text(block.grid->blocks) + ", thread " +
           text(thread) + " of " + text(block.grid->threads);
}

std::string describe_address(const void *address) {
    if (block.kernel) {
        auto offset = (uintptr_t)address - (uintptr_t)block.module->module->dynamic_shared;
        if (offset < dynamic_shared_room)
            return "byte " + std::to_string(offset) + " of dynamic shared memory, which has " + std::to_string(block.grid->dynamic_shared);
        auto above_stack = (uintptr_t)address - (uintptr_t)block.thread[block.running].stack;
        if (above_stack < page_size) return "the stack of the thread is full (" + std::to_string(stack_bytes) + " bytes)";
    }
    return memory::describe(address);
}

void execute(const LoadedModule &module, const Kernel &kernel, const Grid &grid, void *const *arguments) {
    block.module = &module;
    block.kernel = &kernel;
    block.grid = &grid;
    block.arguments = arguments;
    block.ended = false;
    block.threads = grid.threads.x * grid.threads.y * grid.threads.z;
    module.module->position->block_size = grid.threads;
    module.module->position->grid_size = grid.blocks;
    unsigned open = (grid.dynamic_shared + page_size - 1) / page_size * page_size;
    mprotect(module.module->dynamic_shared, dynamic_shared_room, PROT_NONE);
    if (open) mprotect(module.module->dynamic_shared, open, PROT_READ | PROT_WRITE);
    {
        FaultReports watched;
        for (unsigned z = 0; z < grid.blocks.z; ++z)
            for (unsigned y = 0; y < grid.blocks.y; ++y)
                for (unsigned x = 0; x < grid.blocks.x; ++x) run_block({x, y, z});
    }
    block.ended = true;
    memory::check();
    block.kernel = nullptr;
}

}  // namespace emulator
