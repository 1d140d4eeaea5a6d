// What generated element-wise kernels call.
#pragma once
#include "index.cuh"
#include "vector.cuh"

// Products of whole numbers wrap around; only unsigned ones may in C++.
__device__ __forceinline__ i64 product(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
__device__ __forceinline__ u8 product(u8 a, u8 b) { return (u8)(a * b); }

__device__ __forceinline__ float power(float x, float e) { return e == 2 ? __fmul_rn(x, x) : powf(x, e); }
__device__ __forceinline__ double power(double x, double e) { return e == 2 ? __dmul_rn(x, x) : pow(x, e); }
__device__ __forceinline__ i64 power(i64 x, i64 e) {
    u64 result = 1, base = (u64)x;
    for (u32 rest = (u32)e; rest > 0; rest >>= 1, base *= base)
        if (rest & 1) result *= base;
    return (i64)result;
}
__device__ __forceinline__ u8 power(u8 x, u8 e) { return (u8)power((i64)x, (i64)e); }

// Fractions are cut off, values outside the range become its ends, NaN becomes 0: the machine's own conversion differs
// in the last.
template <class F> __device__ __forceinline__ i64 whole(F x) {
    const F limit = F(9223372036854775808.0);
    if (x >= limit) return 0x7fffffffffffffffll;
    if (x < -limit) return -0x7fffffffffffffffll - 1;
    return x == x ? (i64)x : 0;
}

template <class F> __device__ __forceinline__ F sigmoid(F x) { return 1 / (1 + exp(-x)); }

// What a register holds after a result was stored in 16 bits and read again.
template <class T> __device__ __forceinline__ float rounded(float x) { return widen(narrow<T>(x)); }

// Elements as they are computed with; u8 also stands for bool.
__device__ __forceinline__ i64 widen(i64 x) { return x; }
__device__ __forceinline__ u8 widen(u8 x) { return x; }
template <> struct Narrow<i64> { static __device__ __forceinline__ i64 of(i64 x) { return x; } };
template <> struct Narrow<u8> { static __device__ __forceinline__ u8 of(u8 x) { return x; } };
