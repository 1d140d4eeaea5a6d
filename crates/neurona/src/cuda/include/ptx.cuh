// Instructions that CUDA C++ has no name for without its headers. Everything written in PTX stands in files named ptx*.cuh.
#pragma once

__device__ __forceinline__ float f16_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ __forceinline__ unsigned short float_to_f16(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ unsigned short float_to_bf16(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Copies from global to shared memory that go on while the thread does other things. Without `real` the source is not
// read and zeros are written.
__device__ __forceinline__ void cp_async_4(void *to, const void *from, bool real) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(real ? 4 : 0) : "memory");
}

__device__ __forceinline__ void cp_async_16(void *to, const void *from, bool real) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(real ? 16 : 0) : "memory");
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `Groups` groups of this thread's copies have arrived; other threads see them after a barrier.
template <int Groups> __device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory"); }
