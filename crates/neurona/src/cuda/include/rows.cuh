// Work on the rows of a matrix [rows, n]: LANES neighbouring threads (a power of two) share a row, several rows a block
// where they are short. Beyond a warp one row has the whole block.
#pragma once
#include "prelude.cuh"
#include "group.cuh"

#ifndef LANES
#define LANES 32
#endif
// Threads of a block: with as many as this the compiler must not give each more registers than there are.
#define ROW_THREADS (LANES > 128 ? LANES : 128)

__device__ __forceinline__ int row_lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int rows_a_block() { return blockDim.x / LANES; }
__device__ __forceinline__ i64 block_row(i64 block) { return block * rows_a_block() + threadIdx.x / LANES; }

// Joins a value of each of the row's threads in a fixed order; all get the same bits. Every thread of the block calls it.
template <class A, class Join> __device__ __forceinline__ A join_row(A x, Join join) {
    for (int lane = (LANES < 32 ? LANES : 32) / 2; lane > 0; lane >>= 1) x = join(x, __shfl_xor_sync(FULL_WARP, x, lane));
#if LANES > 32
    __shared__ A room[LANES / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    x = room[0];
    for (int warp = 1; warp < LANES / 32; warp++) x = join(x, room[warp]);
#endif
    return x;
}

template <class A> __device__ __forceinline__ A row_sum(A x) {
    return join_row(x, [](A a, A b) { return a + b; });
}
// NaN wins.
template <class A> __device__ __forceinline__ A larger(A a, A b) { return b > a || b != b ? b : a; }
template <class A> __device__ __forceinline__ A row_max(A x) {
    return join_row(x, [](A a, A b) { return larger(a, b); });
}

// Calls f with the start of each of this thread's vectors of a row of n elements.
template <class F> __device__ __forceinline__ void each_group(i64 n, F f) {
    for (i64 i = row_lane() * V; i < n; i += LANES * V) f(i);
}
