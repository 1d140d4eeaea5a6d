// The transforms of Winograd's convolutions with 3 × 3 filters: n × n pixels are made with (n + 2)² products for each pair
// of channels instead of 9 · n².
//
//   pixels = Aᵀ [ (G · filter · Gᵀ) ⊙ (Bᵀ · window · B) ] A,   filter gradient = Gᵀ [ Σ (A · gradient · Aᵀ) ⊙ (Bᵀ · window · B) ] G
//
// Interpolation points are 0, ±5/8, ±3/2 and infinity for n = 4, ±1/2, ±5/4 and infinity for 3, 0, ±1 and infinity for 2:
// sums over channels are long here, and these points lose a third of what the usual ±1 and ±2 do, with factors that are
// exact all the same but for those of G. Against sums in f64, relative to the largest value, results over 512 channels are
// wrong by 3.9e-6, 1.4e-6 and 0.9e-6 (n = 4, 3, 2), over 64 channels by 1.8e-6, 0.8e-6 and 0.4e-6.
#pragma once
#include "vector.cuh"

// Neighbouring channels: all of them go through the same arithmetic.
template <int N> struct Lanes {
    Vector<float, N> of;

    static __device__ __forceinline__ Lanes zero() {
        Lanes all;
        fill(all.of, 0.0f);
        return all;
    }
#define EACH_LANE(EXPRESSION)                  \
    Lanes all;                                 \
    _Pragma("unroll") for (int i = 0; i < N; i++) all.of.at[i] = EXPRESSION; \
    return all;
    friend __device__ __forceinline__ Lanes operator+(const Lanes &a, const Lanes &b) { EACH_LANE(a.of.at[i] + b.of.at[i]) }
    friend __device__ __forceinline__ Lanes operator-(const Lanes &a, const Lanes &b) { EACH_LANE(a.of.at[i] - b.of.at[i]) }
    friend __device__ __forceinline__ Lanes operator*(float a, const Lanes &b) { EACH_LANE(a * b.of.at[i]) }
#undef EACH_LANE
};

// One dimension of each transform: `window` is Bᵀ, `filter` G, `pixels` Aᵀ, `gradient` A and `taps` Gᵀ. Points come in
// pairs ±a and ±b, which share the sums of even and of odd powers.
template <int Pixels> struct Side;

template <> struct Side<4> {
    static constexpr int SIZE = 6;
    static constexpr float a = 0.625f, b = 1.5f, aa = a * a, bb = b * b, aaa = aa * a, bbb = bb * b;
    // The products of a point's differences to the others.
    static constexpr float by_0 = 1 / (aa * bb), by_a = 1 / (2 * aa * (aa - bb)), by_b = 1 / (2 * bb * (bb - aa));

    template <class V> static __device__ __forceinline__ void window(const V (&d)[6], V (&to)[6]) {
        const V even_a = d[4] - bb * d[2], odd_a = a * (d[3] - bb * d[1]), even_b = d[4] - aa * d[2], odd_b = b * (d[3] - aa * d[1]);
        to[0] = aa * bb * d[0] - (aa + bb) * d[2] + d[4], to[5] = aa * bb * d[1] - (aa + bb) * d[3] + d[5];
        to[1] = even_a + odd_a, to[2] = even_a - odd_a, to[3] = even_b + odd_b, to[4] = even_b - odd_b;
    }
    template <class V> static __device__ __forceinline__ void filter(const V (&g)[3], V (&to)[6]) {
        const V even_a = by_a * (g[0] + aa * g[2]), odd_a = by_a * a * g[1], even_b = by_b * (g[0] + bb * g[2]), odd_b = by_b * b * g[1];
        to[0] = by_0 * g[0], to[5] = g[2];
        to[1] = even_a + odd_a, to[2] = even_a - odd_a, to[3] = even_b + odd_b, to[4] = even_b - odd_b;
    }
    template <class V> static __device__ __forceinline__ void pixels(const V (&m)[6], V (&to)[4]) {
        const V s1 = m[1] + m[2], d1 = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];
        to[0] = m[0] + s1 + s2, to[1] = a * d1 + b * d2, to[2] = aa * s1 + bb * s2, to[3] = aaa * d1 + bbb * d2 + m[5];
    }
    template <class V> static __device__ __forceinline__ void gradient(const V (&d)[4], V (&to)[6]) {
        const V even_a = d[0] + aa * d[2], odd_a = a * d[1] + aaa * d[3], even_b = d[0] + bb * d[2], odd_b = b * d[1] + bbb * d[3];
        to[0] = d[0], to[5] = d[3];
        to[1] = even_a + odd_a, to[2] = even_a - odd_a, to[3] = even_b + odd_b, to[4] = even_b - odd_b;
    }
    template <class V> static __device__ __forceinline__ void taps(const V (&m)[6], V (&to)[3]) {
        const V s1 = by_a * (m[1] + m[2]), d1 = by_a * (m[1] - m[2]), s2 = by_b * (m[3] + m[4]), d2 = by_b * (m[3] - m[4]);
        to[0] = by_0 * m[0] + s1 + s2, to[1] = a * d1 + b * d2, to[2] = aa * s1 + bb * s2 + m[5];
    }
};

template <> struct Side<3> {
    static constexpr int SIZE = 5;
    static constexpr float a = 0.5f, b = 1.25f, aa = a * a, bb = b * b;
    static constexpr float by_a = 1 / (2 * a * (aa - bb)), by_b = 1 / (2 * b * (bb - aa));

    template <class V> static __device__ __forceinline__ void window(const V (&d)[5], V (&to)[5]) {
        const V even_a = a * (d[2] - bb * d[0]), odd_a = d[3] - bb * d[1], even_b = b * (d[2] - aa * d[0]), odd_b = d[3] - aa * d[1];
        to[0] = even_a + odd_a, to[1] = even_a - odd_a, to[2] = even_b + odd_b, to[3] = even_b - odd_b;
        to[4] = aa * bb * d[0] - (aa + bb) * d[2] + d[4];
    }
    template <class V> static __device__ __forceinline__ void filter(const V (&g)[3], V (&to)[5]) {
        const V even_a = by_a * (g[0] + aa * g[2]), odd_a = by_a * a * g[1], even_b = by_b * (g[0] + bb * g[2]), odd_b = by_b * b * g[1];
        to[0] = even_a + odd_a, to[1] = even_a - odd_a, to[2] = even_b + odd_b, to[3] = even_b - odd_b, to[4] = g[2];
    }
    template <class V> static __device__ __forceinline__ void pixels(const V (&m)[5], V (&to)[3]) {
        const V s1 = m[0] + m[1], d1 = m[0] - m[1], s2 = m[2] + m[3], d2 = m[2] - m[3];
        to[0] = s1 + s2, to[1] = a * d1 + b * d2, to[2] = aa * s1 + bb * s2 + m[4];
    }
    template <class V> static __device__ __forceinline__ void gradient(const V (&d)[3], V (&to)[5]) {
        const V even_a = d[0] + aa * d[2], odd_a = a * d[1], even_b = d[0] + bb * d[2], odd_b = b * d[1];
        to[0] = even_a + odd_a, to[1] = even_a - odd_a, to[2] = even_b + odd_b, to[3] = even_b - odd_b, to[4] = d[2];
    }
    template <class V> static __device__ __forceinline__ void taps(const V (&m)[5], V (&to)[3]) {
        const V s1 = by_a * (m[0] + m[1]), d1 = by_a * (m[0] - m[1]), s2 = by_b * (m[2] + m[3]), d2 = by_b * (m[2] - m[3]);
        to[0] = s1 + s2, to[1] = a * d1 + b * d2, to[2] = aa * s1 + bb * s2 + m[4];
    }
};

template <> struct Side<2> {
    static constexpr int SIZE = 4;
    template <class V> static __device__ __forceinline__ void window(const V (&d)[4], V (&to)[4]) {
        to[0] = d[0] - d[2], to[1] = d[1] + d[2], to[2] = d[2] - d[1], to[3] = d[3] - d[1];
    }
    template <class V> static __device__ __forceinline__ void filter(const V (&g)[3], V (&to)[4]) {
        const V outer = 0.5f * (g[0] + g[2]), inner = 0.5f * g[1];
        to[0] = g[0], to[1] = outer + inner, to[2] = outer - inner, to[3] = g[2];
    }
    template <class V> static __device__ __forceinline__ void pixels(const V (&m)[4], V (&to)[2]) {
        to[0] = m[0] + m[1] + m[2], to[1] = m[1] - m[2] + m[3];
    }
    template <class V> static __device__ __forceinline__ void gradient(const V (&d)[2], V (&to)[4]) {
        to[0] = d[0], to[1] = d[0] + d[1], to[2] = d[0] - d[1], to[3] = d[1];
    }
    template <class V> static __device__ __forceinline__ void taps(const V (&m)[4], V (&to)[3]) {
        const V sum = 0.5f * (m[1] + m[2]);
        to[0] = m[0] + sum, to[1] = 0.5f * (m[1] - m[2]), to[2] = sum + m[3];
    }
};

// Both dimensions of a transform of FROM × FROM values to TO × TO: `read(row, column)` gives the values, one column after
// the other, and `write(row, column, value)` takes the results, so that no more than half a transform is held.
template <int FROM, int TO, class V, class Read, class Apply, class Write>
__device__ __forceinline__ void transform(Read read, Apply side, Write write) {
    V half[TO][FROM];
#pragma unroll
    for (int column = 0; column < FROM; column++) {
        V from[FROM], to[TO];
#pragma unroll
        for (int row = 0; row < FROM; row++) from[row] = read(row, column);
        side(from, to);
#pragma unroll
        for (int row = 0; row < TO; row++) half[row][column] = to[row];
    }
#pragma unroll
    for (int row = 0; row < TO; row++) {
        V to[TO];
        side(half[row], to);
#pragma unroll
        for (int column = 0; column < TO; column++) write(row, column, to[column]);
    }
}
