// Rung 1, naive: one thread a result, neighbours in a warp take neighbouring rows.
//
// The 32 threads of a warp read 32 different rows of A at once, 32 places far apart, and write so too: memory moves
// sectors of 32 bytes, so 32 of them travel for one instruction that wants a few bytes of each.
#include "operands.cuh"

extern "C" __global__ void product(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, const Sizes size) {
    const int row = blockIdx.x * 32 + threadIdx.x % 32, column = blockIdx.y * 8 + threadIdx.x / 32;
    if (row >= size.m || column >= size.n) return;
    float sum = 0;
    for (int depth = 0; depth < size.k; depth++) sum += value(left(a, size, row, depth)) * value(right(b, size, depth, column));
    c[(i64)row * size.n + column] = narrow<T>(sum);
}
