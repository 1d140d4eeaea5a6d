// Rung 2, coalesced: the same work, but neighbours in a warp take neighbouring columns.
//
// Now a warp reads one run of B and a single element of A, and writes one run of C: every byte that arrives is used. Only
// two numbers for the thread have changed places.
#include "operands.cuh"

extern "C" __global__ void product(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, const Sizes size) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
    if (row >= size.m || column >= size.n) return;
    float sum = 0;
    for (int depth = 0; depth < size.k; depth++) sum += value(left(a, size, row, depth)) * value(right(b, size, depth, column));
    c[(i64)row * size.n + column] = narrow<T>(sum);
}
