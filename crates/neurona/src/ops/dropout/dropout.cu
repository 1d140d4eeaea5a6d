// Elements zeroed at random. The random number of an element depends on the key and its place alone: the same elements
// are dropped as on CPU cores.
#include "vector.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

typedef ELEMENT T;

// The finaliser of splitmix64.
__device__ __forceinline__ u64 mix(u64 x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// From 0 to 1, with the 24 bits that a float can hold.
__device__ __forceinline__ float unit(u64 bits) { return (float)(u32)(bits >> 40) * (1.0f / (1u << 24)); }

extern "C" __global__ void dropout(const T *__restrict__ x, const u64 *__restrict__ key, const double *__restrict__ probability, T *__restrict__ y, u64 count) {
    constexpr int N = 16 / sizeof(T);
    const u64 start = *key;
    const double p = *probability;
    const float limit = (float)p;
    const Wide<T> scale = (Wide<T>)(p < 1 ? 1 / (1 - p) : 0);
    for (u64 at = (u64)first_element() * N; at < count; at += (u64)element_stride() * N) {
        Vector<T, N> all = load<N>(x, at, count);
#pragma unroll
        for (int k = 0; k < N; k++) {
            bool kept = unit(mix(start + (at + k) * 0x9E3779B97F4A7C15ull)) >= limit;
            all.at[k] = narrow<T>(kept ? widen(all.at[k]) * scale : Wide<T>(0));
        }
        store<N>(y, at, count, all);
    }
}
