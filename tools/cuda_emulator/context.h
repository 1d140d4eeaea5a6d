// Switching between stacks without a system call.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

#if defined(__x86_64__)

// Everything a function must preserve is pushed on the stack that is left, so a context is a stack pointer.
struct StackContext {
    void *stack_pointer = nullptr;
};

extern "C" void emulator_switch_stack(void **save, void *load);

inline void switch_to(StackContext &from, StackContext &to) { emulator_switch_stack(&from.stack_pointer, to.stack_pointer); }

inline void start_at(StackContext &context, void *stack, size_t bytes, void (*entry)()) {
    auto top = (uintptr_t *)((uintptr_t)((char *)stack + bytes) & ~(uintptr_t)15);
    // As if `entry` had just been called: its return address lies at a multiple of 16 plus 8.
    *--top = 0;
    *--top = (uintptr_t)entry;
    for (int saved = 0; saved < 6; ++saved) *--top = 0;
    context.stack_pointer = top;
}

#else

struct StackContext {
    ucontext_t context;
};

inline void switch_to(StackContext &from, StackContext &to) { swapcontext(&from.context, &to.context); }

inline void start_at(StackContext &context, void *stack, size_t bytes, void (*entry)()) {
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = bytes;
    context.context.uc_link = nullptr;
    makecontext(&context.context, entry, 0);
}

#endif

}  // namespace emulator
