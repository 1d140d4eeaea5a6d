// V elements that are loaded and stored at once; the host chooses a power of two that divides the length of a row and
// makes at most 16 bytes.
#pragma once
#include "vector.cuh"

#ifndef VECTOR
#define VECTOR 4
#endif
static constexpr int V = VECTOR;

template <class T> using Group = Vector<T, V>;

template <class T> __device__ __forceinline__ Group<T> load_group(const T *from) { return *(const Group<T> *)from; }
template <class T> __device__ __forceinline__ void store_group(T *to, const Group<T> &vector) { *(Group<T> *)to = vector; }

// As numbers to calculate with.
template <class W, class T> __device__ __forceinline__ void widen_all(W (&to)[V], const Group<T> &vector) {
    for (int k = 0; k < V; k++) to[k] = widen(vector.at[k]);
}
template <class W, class T> __device__ __forceinline__ void load_wide(W (&to)[V], const T *from) { widen_all(to, load_group(from)); }
template <class T, class W> __device__ __forceinline__ void store_narrow(T *to, const W (&from)[V]) {
    Group<T> vector;
    for (int k = 0; k < V; k++) vector.at[k] = narrow<T>(from[k]);
    store_group(to, vector);
}
