// All parameters of a model in one launch: blocks look up which parameter, and which piece of it, is theirs.
#pragma once
#include "vector.cuh"

// The element type of parameters and their state, and that of gradients.
#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef GRADIENT
#define GRADIENT ELEMENT
#endif
// Parameters that the launch has room for.
#ifndef CAPACITY
#define CAPACITY 8
#endif
// Operands of each parameter: itself, its gradient, its state. Results are all but the gradient.
#ifndef OPERANDS
#define OPERANDS 4
#endif
#define ADDRESSES (2 * OPERANDS - 1)

typedef ELEMENT T;
typedef GRADIENT G;
typedef Wide<ELEMENT> W;

// Elements of a thread: the wider of the two types fills a 16-byte access.
constexpr int N = 16 / (sizeof(T) > sizeof(G) ? sizeof(T) : sizeof(G));

struct Table { void *at[CAPACITY * ADDRESSES]; };

struct Pieces {
    i64 sizes[CAPACITY];
    // The first block of each parameter, then the number of blocks.
    u32 first[CAPACITY + 1];
    u32 parameters;
};

// What a thread reads and writes: N elements of one parameter from `at` on, none where that is not inside.
struct Share {
    int parameter;
    u64 at, size;
    __device__ __forceinline__ bool inside() const { return at < size; }
    template <class E> __device__ __forceinline__ Vector<E, N> read(const Table &table, int operand) const {
        return load<N>((const E *)table.at[parameter * ADDRESSES + operand], at, size);
    }
    __device__ __forceinline__ void write(const Table &table, int result, const Vector<T, N> &all) const {
        store<N>((T *)table.at[parameter * ADDRESSES + OPERANDS + result], at, size, all);
    }
};

__device__ __forceinline__ Share share_of(const Pieces &pieces) {
    // The last parameter that begins at or before this block; empty ones begin where the next does.
    int low = 0, high = (int)pieces.parameters;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (pieces.first[middle] <= blockIdx.x) low = middle;
        else high = middle;
    }
    Share share;
    share.parameter = low;
    share.at = ((u64)(blockIdx.x - pieces.first[low]) * blockDim.x + threadIdx.x) * N;
    share.size = (u64)pieces.sizes[low];
    return share;
}

// `from + weight * (to - from)`, from the end that is nearer.
__device__ __forceinline__ W between(W from, W to, W weight, W rest) {
    return weight < W(0.5) ? from + weight * (to - from) : to - (to - from) * rest;
}
