// Where in the middle dimension of [outer, mid, inner] the largest or smallest element stands. The first of equals wins;
// NaN wins over numbers.
//
// Lines are cut into parts where they are few and long: each part leaves the place of its winner, as
// [outer, parts, inner], and a second launch compares those.
#include "rows.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
// Whether the smallest is looked for.
#ifndef LEAST
#define LEAST 0
#endif

typedef ELEMENT T;
__device__ __forceinline__ i64 widen(i64 x) { return x; }
__device__ __forceinline__ i64 widen(u8 x) { return x; }
typedef decltype(widen(T())) A;

struct Best {
    A value;
    i64 place;
};

// A place below 0 is none.
__device__ __forceinline__ bool beats(const Best &a, const Best &b) {
    if (a.place < 0 || b.place < 0) return b.place < 0 && a.place >= 0;
    bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a || nan_b) return nan_a && (!nan_b || a.place < b.place);
    if (a.value == b.value) return a.place < b.place;
    return LEAST ? a.value < b.value : a.value > b.value;
}

// Parts of lines: the places of parts' winners are candidates, [outer, inner, parts], of a second launch.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) arg_reduce_rows(const T *__restrict__ x, i64 *__restrict__ places, i64 outer, i64 mid, i64 parts, i64 part) {
    i64 unit = block_row(blockIdx.x);
    Best best = {0, -1};
    i64 row = unit / parts, first = (unit - row * parts) * part;
    if (row < outer)
        for (i64 i = first + row_lane(); i < mid && i < first + part; i += LANES) {
            Best other = {widen(x[row * mid + i]), i};
            if (beats(other, best)) best = other;
        }
    __shared__ Best room[32];
    for (int lane = (LANES < 32 ? LANES : 32) / 2; lane > 0; lane >>= 1) {
        Best other = {__shfl_xor_sync(FULL_WARP, best.value, lane), __shfl_xor_sync(FULL_WARP, best.place, lane)};
        if (beats(other, best)) best = other;
    }
    if (LANES > 32) {
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = best;
        __syncthreads();
        for (int warp = 0; warp < LANES / 32; warp++)
            if (beats(room[warp], best)) best = room[warp];
    }
    if (row < outer && row_lane() == 0) places[unit] = best.place;
}

// The best of each line's candidates.
extern "C" __global__ void arg_reduce_candidates(const T *__restrict__ x, const i64 *__restrict__ candidates, i64 *__restrict__ places, i64 outer, i64 mid, i64 inner, i64 parts) {
    for (i64 line = first_element(); line < outer * inner; line += element_stride()) {
        Best best = {0, -1};
        i64 o = line / inner, column = line - o * inner;
        for (i64 i = 0; i < parts; i++) {
            i64 place = candidates[(o * parts + i) * inner + column];
            Best other = {widen(x[(o * mid + place) * inner + column]), place};
            if (beats(other, best)) best = other;
        }
        places[line] = best.place;
    }
}

// inner > 1: one thread a column and part.
extern "C" __global__ void arg_reduce_columns(const T *__restrict__ x, i64 *__restrict__ places, i64 outer, i64 mid, i64 inner, i64 parts, i64 part) {
    for (i64 unit = first_element(); unit < outer * parts * inner; unit += element_stride()) {
        i64 group = unit / inner, column = unit - group * inner, o = group / parts, first = (group - o * parts) * part;
        Best best = {0, -1};
#pragma unroll 4
        for (i64 i = first; i < mid && i < first + part; i++) {
            Best other = {widen(x[(o * mid + i) * inner + column]), i};
            if (beats(other, best)) best = other;
        }
        places[unit] = best.place;
    }
}
