// Sums of the elements that were taken from each place, in the order of the places: every sum has one owner that looks
// through all places for its own, so that no two runs differ in a bit.
#include "prelude.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

typedef ELEMENT T;

#define WARPS 8
// Elements of a line that one lane sums: the more, the less often the places are looked through.
#define EACH 4

// dy is [outer, count, inner], dx is [outer, size, inner].
struct Sizes {
    i64 outer, size, inner, count;
    // Steps in the places from one index of outer, count and inner to the next.
    i64 by_outer, by_count, by_inner;
};

// A thread an element: for places of their own for each element, or short lines.
extern "C" __global__ void scatter_add(const T *__restrict__ dy, const i64 *__restrict__ places, T *__restrict__ dx, Sizes sizes) {
    i64 total = sizes.outer * sizes.size * sizes.inner;
    for (i64 e = first_element(); e < total; e += element_stride()) {
        i64 within = e % sizes.inner, line = e / sizes.inner;
        i64 place = line % sizes.size, outer = line / sizes.size;
        const i64 *named = places + outer * sizes.by_outer + within * sizes.by_inner;
        const T *from = dy + outer * sizes.count * sizes.inner + within;
        Wide<T> sum = 0;
#pragma unroll 4
        for (i64 j = 0; j < sizes.count; j++)
            if (named[j * sizes.by_count] == place) sum += widen(from[j * sizes.inner]);
        dx[e] = narrow<T>(sum);
    }
}

// A warp a line of dx, or 32 · EACH elements of it: the lanes look at 32 places at once and add whole lines.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    scatter_add_lines(const T *__restrict__ dy, const i64 *__restrict__ places, T *__restrict__ dx, Sizes sizes) {
    const int lane = threadIdx.x & 31;
    i64 chunks = (sizes.inner + 32 * EACH - 1) / (32 * EACH);
    i64 warp = (i64)blockIdx.x * WARPS + (threadIdx.x >> 5);
    i64 first = warp % chunks * (32 * EACH) + lane, line = warp / chunks;
    i64 place = line % sizes.size, outer = line / sizes.size;
    // Whole warps leave, so that those that stay have all their lanes.
    if (outer >= sizes.outer) return;
    Wide<T> sums[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) sums[k] = 0;
#pragma unroll 4
    for (i64 j = 0; j < sizes.count; j += 32) {
        i64 named = j + lane < sizes.count ? places[j + lane] : -1;
        for (u32 mine = __ballot_sync(FULL_WARP, named == place); mine; mine &= mine - 1) {
            const T *from = dy + (outer * sizes.count + j + __ffs(mine) - 1) * sizes.inner;
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (first + 32 * k < sizes.inner) sums[k] += widen(from[first + 32 * k]);
        }
    }
    T *to = dx + (outer * sizes.size + place) * sizes.inner;
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (first + 32 * k < sizes.inner) to[first + 32 * k] = narrow<T>(sums[k]);
}
