// Running sums along the middle dimension of [outer, size, inner], from its end with `reverse`. Sums of 32 bits and fewer
// are taken in double precision, as in PyTorch.
#include "scan.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

template <class T> struct SumOf { typedef double type; };
// Unsigned, because whole numbers wrap around.
template <> struct SumOf<i64> { typedef u64 type; };

typedef ELEMENT T;
typedef SumOf<T>::type A;

__device__ __forceinline__ u64 widen(i64 x) { return (u64)x; }
template <class T> struct Cut { static __device__ __forceinline__ T of(A x) { return narrow<T>((Wide<T>)x); } };
template <> struct Cut<i64> { static __device__ __forceinline__ i64 of(A x) { return (i64)x; } };

// One thread a line.
extern "C" __global__ void cumsum_lines(const T *__restrict__ x, T *__restrict__ y, i64 outer, i64 size, i64 inner, int reverse) {
    for (i64 line = first_element(); line < outer * inner; line += element_stride()) {
        i64 o = line / inner, from = o * size * inner + line - o * inner;
        A sum = 0;
#pragma unroll 4
        for (i64 i = 0; i < size; i++) {
            i64 at = from + (reverse ? size - 1 - i : i) * inner;
            sum += (A)widen(x[at]);
            y[at] = Cut<T>::of(sum);
        }
    }
}

// One block a line, for few long ones.
extern "C" __global__ void cumsum_line(const T *__restrict__ x, T *__restrict__ y, i64 size, i64 inner, int reverse) {
    __shared__ A room[32];
    i64 o = blockIdx.x / inner, from = o * size * inner + blockIdx.x - o * inner;
    A sum = 0;
    for (i64 first = 0; first < size; first += blockDim.x) {
        i64 i = first + threadIdx.x, at = from + (reverse ? size - 1 - i : i) * inner;
        A own = i < size ? (A)widen(x[at]) : 0, total;
        A before = scan_before(own, A(0), room, total, [](A a, A b) { return a + b; });
        if (i < size) y[at] = Cut<T>::of(sum + before + own);
        sum += total;
    }
}
