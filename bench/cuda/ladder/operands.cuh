// What the rungs share: the sizes of a product, and where the elements of its operands lie.
//
// C[m, n] = A[m, k] · B[k, n], all row by row. A convolution is the same product when A is not stored but gathered: row =
// output pixel, depth = (filter row, filter column, channel), the element is the image's value there, or 0 past its edge.
// Images are [n, SIZE, SIZE, CHANNELS], filters [FILTER, FILTER, CHANNELS, n]. A never exists in memory, so a rung that
// multiplies matrices well convolves well.
#pragma once
#include "prelude.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef CONVOLUTION
#define CONVOLUTION 0
#endif
#ifndef CHANNELS
#define CHANNELS 64
#define SIZE 32
#define FILTER 3
#define STRIDE 1
#define PADDING 1
#endif
// Whether runs of elements can be read at once: k (or CHANNELS) and n are multiples of the run's length.
#ifndef VECTOR
#define VECTOR 1
#endif

typedef ELEMENT T;

struct Sizes {
    int m, n, k;
};

// Null where there is no element: outside the matrix, or where a filter looks past an image's edge.
__device__ __forceinline__ const T *left(const T *a, const Sizes &size, int row, int depth) {
    if (row >= size.m || depth >= size.k) return nullptr;
#if CONVOLUTION
    // Divisors are constants of the compilation: each becomes a multiplication and a shift.
    constexpr int OUT = (SIZE + 2 * PADDING - FILTER) / STRIDE + 1;
    int image = row / (OUT * OUT), pixel = row % (OUT * OUT), tap = depth / CHANNELS;
    int y = pixel / OUT * STRIDE + tap / FILTER - PADDING, x = pixel % OUT * STRIDE + tap % FILTER - PADDING;
    if ((u32)y >= SIZE || (u32)x >= SIZE) return nullptr;
    return a + (((i64)image * SIZE + y) * SIZE + x) * CHANNELS + depth % CHANNELS;
#else
    return a + (i64)row * size.k + depth;
#endif
}

__device__ __forceinline__ const T *right(const T *b, const Sizes &size, int depth, int column) {
    return depth < size.k && column < size.n ? b + (i64)depth * size.n + column : nullptr;
}

__device__ __forceinline__ float value(const T *at) { return at ? (float)widen(*at) : 0.0f; }

// N neighbours, read at once where VECTOR allows it.
template <int N> struct __align__(sizeof(T) * N) Run { T at[N]; };
template <int N> __device__ __forceinline__ Run<N> zeros() {
    Run<N> run;
#pragma unroll
    for (int i = 0; i < N; i++) run.at[i] = narrow<T>(0.0f);
    return run;
}
// From (row, depth) along the depth.
template <int N> __device__ __forceinline__ Run<N> left_run(const T *a, const Sizes &size, int row, int depth) {
    Run<N> run = zeros<N>();
    if (VECTOR) {
        const T *at = left(a, size, row, depth);
        if (at) run = *(const Run<N> *)at;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const T *at = left(a, size, row, depth + i);
            if (at) run.at[i] = *at;
        }
    }
    return run;
}
// From (depth, column) along the columns.
template <int N> __device__ __forceinline__ Run<N> right_run(const T *b, const Sizes &size, int depth, int column) {
    Run<N> run = zeros<N>();
    if (VECTOR) {
        const T *at = right(b, size, depth, column);
        if (at) run = *(const Run<N> *)at;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const T *at = right(b, size, depth, column + i);
            if (at) run.at[i] = *at;
        }
    }
    return run;
}

// Two neighbouring results.
__device__ __forceinline__ void store_pair(T *c, const Sizes &size, int row, int column, float first, float second) {
    if (row >= size.m) return;
    T *at = c + (i64)row * size.n + column;
    if (VECTOR) {
        const Run<2> both = {{narrow<T>(first), narrow<T>(second)}};
        if (column < size.n) *(Run<2> *)at = both;
    } else {
        if (column < size.n) at[0] = narrow<T>(first);
        if (column + 1 < size.n) at[1] = narrow<T>(second);
    }
}
