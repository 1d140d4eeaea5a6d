// Elements zeroed at random. The random number of an element depends on the key and its place alone: the same elements
// are dropped as on CPU cores.
#include "random.cuh"
#include "vector.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

typedef ELEMENT T;

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
            bool kept = random_unit(random_at(start, at + k)) >= limit;
            all.at[k] = narrow<T>(kept ? widen(all.at[k]) * scale : Wide<T>(0));
        }
        store<N>(y, at, count, all);
    }
}
