// Copies into shared memory by all threads of a block, several reads on their way at a time: one after the other, each
// would wait for memory alone.
#pragma once
#include "prelude.cuh"

// For each index below COUNT: `store(index, load(index))`. BATCH reads of V are in flight for each of THREADS threads.
template <class V, int COUNT, int THREADS, int BATCH, class Load, class Store>
__device__ __forceinline__ void stage(Load load, Store store) {
    for (int base = threadIdx.x; base < COUNT; base += THREADS * BATCH) {
        V held[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (base + i * THREADS < COUNT) held[i] = load(base + i * THREADS);
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (base + i * THREADS < COUNT) store(base + i * THREADS, held[i]);
    }
}

// Starts the way of N elements into shared memory, zeros where they are not `there`. What is too short to travel on its own
// has arrived when this returns; the rest has after `cp_async_wait`.
template <int N, class T> __device__ __forceinline__ void bring(T *to, const T *from, bool there) {
    constexpr int BYTES = N * sizeof(T);
    if constexpr (BYTES == 16) cp_async_16(to, from, there);
    else if constexpr (BYTES == 8) cp_async_8(to, from, there);
    else if constexpr (BYTES == 4) cp_async_4(to, from, there);
    else *to = there ? *from : T{};
}
