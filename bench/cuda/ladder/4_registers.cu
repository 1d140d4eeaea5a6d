// Rung 4, tiles in registers: a thread computes 8 × 8 results.
//
// At each depth it reads 8 + 8 values from shared memory and makes 64 products of them, four for each value read where
// the rung before made half of one. Registers are the fastest memory there is and nobody else waits for them.
#include "operands.cuh"

#ifndef TILE_N
#define TILE_N 128
#endif
constexpr int TILE_M = 128, DEPTH = 8, EACH = 8;
constexpr int ACROSS = TILE_N / EACH, THREADS = TILE_M / EACH * ACROSS;

extern "C" __global__ void __launch_bounds__(THREADS) product(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, const Sizes size) {
    // A transposed, so that the rows a thread needs at one depth are neighbours.
    __shared__ float lefts[DEPTH][TILE_M], rights[DEPTH][TILE_N];
    const int first_row = blockIdx.x * TILE_M, first_column = blockIdx.y * TILE_N;
    const int row = threadIdx.x / ACROSS * EACH, column = threadIdx.x % ACROSS * EACH;
    float sum[EACH][EACH] = {};
    for (int start = 0; start < size.k; start += DEPTH) {
        for (int i = threadIdx.x; i < TILE_M * DEPTH; i += THREADS) {
            lefts[i % DEPTH][i / DEPTH] = value(left(a, size, first_row + i / DEPTH, start + i % DEPTH));
        }
        for (int i = threadIdx.x; i < TILE_N * DEPTH; i += THREADS) {
            rights[i / TILE_N][i % TILE_N] = value(right(b, size, start + i / TILE_N, first_column + i % TILE_N));
        }
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth++) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] += lefts[depth][row + i] * rights[depth][column + j];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int r = first_row + row + i, q = first_column + column + j;
            if (r < size.m && q < size.n) c[(i64)r * size.n + q] = narrow<T>(sum[i][j]);
        }
    }
}
