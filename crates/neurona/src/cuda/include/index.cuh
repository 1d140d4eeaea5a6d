// Positions from element numbers, without the machine's slow division.
#pragma once
#include "prelude.cuh"

// A size to divide by. The host works the multiplier out once (Granlund and Montgomery): for numbers below 2^31 a
// multiplication and a shift then take the place of some thirty instructions.
template <class I> struct Divisor;
template <> struct Divisor<u32> {
    u32 size, multiplier, shift;
    __device__ __forceinline__ u32 quotient(u32 n) const { return ((u32)(((u64)n * multiplier) >> 32) + n) >> shift; }
};
// Tensors of 2^31 elements and more are so large that memory is what they wait for.
template <> struct Divisor<u64> {
    u64 size;
    __device__ __forceinline__ u64 quotient(u64 n) const { return n / size; }
};

// The remainder of `n`, which becomes the quotient.
template <class I> __device__ __forceinline__ I digit(I &n, const Divisor<I> &by) {
    I quotient = by.quotient(n), rest = n - quotient * by.size;
    n = quotient;
    return rest;
}

// Plain bytes of the size of an element, or of several: what kernels copy that only move.
template <int size> struct BytesOf;
template <> struct BytesOf<1> { typedef u8 type; };
template <> struct BytesOf<2> { typedef unsigned short type; };
template <> struct BytesOf<4> { typedef u32 type; };
template <> struct BytesOf<8> { typedef u64 type; };
template <> struct BytesOf<16> { typedef Pack<u64> type; };
template <int size> using Bytes = typename BytesOf<size>::type;

// `pattern` holds 8 bytes of a repeated element.
template <class E> __device__ __forceinline__ E repeated(u64 pattern) { return (E)pattern; }
template <> __device__ __forceinline__ Pack<u64> repeated<Pack<u64>>(u64 pattern) {
    Pack<u64> all;
    all.at[0] = all.at[1] = pattern;
    return all;
}
