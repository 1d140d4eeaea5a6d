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

// Element k as a number to calculate with.
template <class T> __device__ __forceinline__ Wide<T> wide_at(const Group<T> &vector, int k) { return widen(vector.at[k]); }
// The upper of two bf16 in a register needs no shift, which the compiler does not see where they are apart.
template <> __device__ __forceinline__ float wide_at<bf16>(const Group<bf16> &vector, int k) {
    if constexpr (V % 2 == 0) {
        u32 both = reinterpret_cast<const Vector<u32, (V + 1) / 2> &>(vector).at[k / 2];
        return __uint_as_float(k % 2 ? both & 0xffff0000u : both << 16);
    }
    return widen(vector.at[k]);
}

// All of them.
template <class W, class T> __device__ __forceinline__ void widen_all(W (&to)[V], const Group<T> &vector) {
    for (int k = 0; k < V; k++) to[k] = wide_at(vector, k);
}
template <class W, class T> __device__ __forceinline__ void load_wide(W (&to)[V], const T *from) { widen_all(to, load_group(from)); }
template <class T, class W> __device__ __forceinline__ void store_narrow(T *to, const W (&from)[V]) {
    Group<T> vector;
    for (int k = 0; k < V; k++) vector.at[k] = narrow<T>(from[k]);
    store_group(to, vector);
}
