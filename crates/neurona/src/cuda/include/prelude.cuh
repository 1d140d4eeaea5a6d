// What every kernel needs: element types, conversions, sums over a warp and a block. No CUDA headers are used, so that
// a machine with a driver and NVRTC alone can compile.
#pragma once
#include "ptx.cuh"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// 16-bit floats are storage: arithmetic happens in f32.
struct __align__(2) f16 { unsigned short bits; };
struct __align__(2) bf16 { unsigned short bits; };

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(f16 x) { return f16_to_float(x.bits); }
// A bf16 is the upper half of an f32.
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

template <class T> struct Narrow;
template <> struct Narrow<float> { static __device__ __forceinline__ float of(float x) { return x; } };
template <> struct Narrow<double> { static __device__ __forceinline__ double of(double x) { return x; } };
template <> struct Narrow<f16> { static __device__ __forceinline__ f16 of(float x) { f16 y; y.bits = float_to_f16(x); return y; } };
template <> struct Narrow<bf16> { static __device__ __forceinline__ bf16 of(float x) { bf16 y; y.bits = float_to_bf16(x); return y; } };
// Rounds to the nearest, ties to even, as the CPU does.
template <class T, class W> __device__ __forceinline__ T narrow(W x) { return Narrow<T>::of(x); }

// What becomes of two numbers that are stored as T and read again.
template <class T, class W> __device__ __forceinline__ void store_and_read(W &a, W &b) {
    T narrow_a = narrow<T>(a), narrow_b = narrow<T>(b);
    a = widen(narrow_a), b = widen(narrow_b);
}
template <> __device__ __forceinline__ void store_and_read<bf16, float>(float &a, float &b) {
    u32 both = floats_to_bf16(a, b);
    a = __uint_as_float(both << 16), b = __uint_as_float(both & 0xffff0000u);
}

// The type that sums and arithmetic on T use.
template <class T> struct WideOf { typedef float type; };
template <> struct WideOf<double> { typedef double type; };
template <class T> using Wide = typename WideOf<T>::type;

// 16 bytes at once: the widest load a thread has.
template <class T> struct __align__(16) Pack { T at[16 / sizeof(T)]; };

#define FULL_WARP 0xffffffffu

// The sum over a warp, the same bits in every lane: the tree is fixed.
template <class A> __device__ __forceinline__ A warp_sum(A x) {
    for (int lane = 16; lane > 0; lane >>= 1) x += __shfl_xor_sync(FULL_WARP, x, lane);
    return x;
}
template <class A> __device__ __forceinline__ A warp_max(A x) {
    for (int lane = 16; lane > 0; lane >>= 1) {
        A other = __shfl_xor_sync(FULL_WARP, x, lane);
        x = other > x || other != other ? other : x;
    }
    return x;
}

// The sum over a block whose size is a multiple of 32, the same bits in every thread. `room` is shared memory for 33 values.
template <class A> __device__ __forceinline__ A block_sum(A x, A *room) {
    x = warp_sum(x);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        A part = threadIdx.x < (blockDim.x + 31) / 32 ? room[threadIdx.x] : A(0);
        part = warp_sum(part);
        if (threadIdx.x == 0) room[32] = part;
    }
    __syncthreads();
    return room[32];
}

// This thread's number among all, and how many there are: for loops over elements that any grid covers.
__device__ __forceinline__ i64 first_element() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 element_stride() { return (i64)gridDim.x * blockDim.x; }

// Tells the host that element `at` of the operands is a number that does not fit (see fault.rs). Of several any one is
// told; which, decides nothing that is computed.
__device__ __forceinline__ void report(volatile u64 *fault, i64 at, i64 value) {
    i64 least = -2147483647 - 1, most = 2147483647;
    i64 near = value < least ? least : value > most ? most : value;
    *fault = (u64)(at + 1) << 32 | (u32)near;
}
