// V elements that are loaded and stored at once; the host chooses a power of two that divides the length of a row and
// makes at most 16 bytes.
#pragma once
#include "prelude.cuh"

#ifndef VECTOR
#define VECTOR 4
#endif
static constexpr int V = VECTOR;

template <class T, int N = V> struct __align__(sizeof(T) * N) Vector { T at[N]; };

template <class T> __device__ __forceinline__ Vector<T> load_vector(const T *from) { return *(const Vector<T> *)from; }
template <class T> __device__ __forceinline__ void store_vector(T *to, const Vector<T> &vector) { *(Vector<T> *)to = vector; }

// As numbers to calculate with.
template <class W, class T> __device__ __forceinline__ void widen_all(W (&to)[V], const Vector<T> &vector) {
    for (int k = 0; k < V; k++) to[k] = widen(vector.at[k]);
}
template <class W, class T> __device__ __forceinline__ void load_wide(W (&to)[V], const T *from) { widen_all(to, load_vector(from)); }
template <class T, class W> __device__ __forceinline__ void store_narrow(T *to, const W (&from)[V]) {
    Vector<T> vector;
    for (int k = 0; k < V; k++) vector.at[k] = narrow<T>(from[k]);
    store_vector(to, vector);
}
