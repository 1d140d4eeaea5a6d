// The ends of a type's range: where the search for a largest or smallest element starts.
#pragma once
#include "prelude.cuh"

template <class A> struct Limits;
template <> struct Limits<float> {
    static __device__ __forceinline__ float greatest() { return __int_as_float(0x7f800000); }
    static __device__ __forceinline__ float least() { return -greatest(); }
    static __device__ __forceinline__ float nan() { return __int_as_float(0x7fc00000); }
};
template <> struct Limits<double> {
    static __device__ __forceinline__ double greatest() { return __longlong_as_double(0x7ff0000000000000); }
    static __device__ __forceinline__ double least() { return -greatest(); }
    static __device__ __forceinline__ double nan() { return __longlong_as_double(0x7ff8000000000000); }
};
template <> struct Limits<i64> {
    static __device__ __forceinline__ i64 greatest() { return 0x7fffffffffffffff; }
    static __device__ __forceinline__ i64 least() { return -greatest() - 1; }
};
