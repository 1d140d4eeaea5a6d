// Running sums and products over a block whose size is a multiple of 32.
#pragma once
#include "prelude.cuh"

// What the values of all threads before this one join to, `start` for the first; `total` is what all join to. `room` is
// shared memory for 32 values.
template <class A, class Join> __device__ __forceinline__ A scan_before(A x, A start, A *room, A &total, Join join) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 1; step < 32; step *= 2) {
        A other = __shfl_up_sync(FULL_WARP, x, step);
        if (lane >= step) x = join(other, x);
    }
    A before = __shfl_up_sync(FULL_WARP, x, 1);
    if (lane == 0) before = start;
    __syncthreads();
    if (lane == 31) room[warp] = x;
    __syncthreads();
    total = start;
    A earlier = start;
    for (int i = 0; i < blockDim.x / 32; i++) {
        if (i == warp) earlier = total;
        total = join(total, room[i]);
    }
    return join(earlier, before);
}
