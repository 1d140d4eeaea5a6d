// Several neighbouring elements at once, and arithmetic on them that does not depend on what a compiler merges.
#pragma once
#include "prelude.cuh"

// N elements that are read and written at once.
template <class T, int N> struct __align__(sizeof(T) * N) Vector { T at[N]; };

template <int N, class T> __device__ __forceinline__ Vector<T, N> whole_vector(const T *from, u64 at) {
    return *reinterpret_cast<const Vector<T, N> *>(from + at);
}
template <class T, int N> __device__ __forceinline__ void fill(Vector<T, N> &all, T with) {
#pragma unroll
    for (int k = 0; k < N; k++) all.at[k] = with;
}

// Elements `at..at + N` of `count`; what lies behind the last is left as it is.
template <int N, class T> __device__ __forceinline__ Vector<T, N> load(const T *from, u64 at, u64 count) {
    Vector<T, N> all;
    if (at + N <= count) {
        all = whole_vector<N>(from, at);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) all.at[k] = from[at + k < count ? at + k : at];
    }
    return all;
}
template <int N, class T> __device__ __forceinline__ void store(T *to, u64 at, u64 count, const Vector<T, N> &all) {
    if (at + N <= count) {
        *reinterpret_cast<Vector<T, N> *>(to + at) = all;
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            if (at + k < count) to[at + k] = all.at[k];
    }
}

// Products that no addition is merged into: results are those of the ops one by one, and a·b − a·b is 0.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
// Products that an addition is merged into, wherever they stand: what is computed a second time has the same bits.
__device__ __forceinline__ float merged(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double merged(double a, double b, double c) { return __fma_rn(a, b, c); }
