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

// Two at once, the first in the lower half.
__device__ __forceinline__ unsigned floats_to_bf16(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// The greater of two; NaN when one is.
__device__ __forceinline__ float greater(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

// Copies from global to shared memory that go on while the thread does other things. Without `real` the source is not
// read and zeros are written.
__device__ __forceinline__ void cp_async_4(void *to, const void *from, bool real) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(real ? 4 : 0) : "memory");
}

__device__ __forceinline__ void cp_async_8(void *to, const void *from, bool real) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address), "l"(from), "r"(real ? 8 : 0) : "memory");
}

__device__ __forceinline__ void cp_async_16(void *to, const void *from, bool real) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(real ? 16 : 0) : "memory");
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `Groups` groups of this thread's copies have arrived; other threads see them after a barrier.
template <int Groups> __device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory"); }

// Four 8 × 8 matrices of 16-bit values from shared memory, a register each: lanes 8m to 8m + 7 name the rows of matrix m,
// each at a multiple of 16 bytes. A lane gets two neighbours of a row; transposed, of a column.
__device__ __forceinline__ void ldmatrix_x4(unsigned *parts, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_transposed(unsigned *parts, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

// Adds the product of a 16 × 16 and a 16 × 8 matrix to sums in f32, all three spread over a warp's registers.
__device__ __forceinline__ void mma_f16(float *sums, const unsigned *left, const unsigned *right) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

__device__ __forceinline__ void mma_bf16(float *sums, const unsigned *left, const unsigned *right) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
