// Rung 5, vectors: four neighbours move with one instruction, and no two threads of a warp want the same bank.
//
// A load of four values costs an instruction as a load of one does, and instructions are what limits rung 4. The padding
// of A's tile spreads the transposed stores over the banks of shared memory; the results of a thread stand in four
// blocks of 4 × 4, so that the reads of neighbouring threads are neighbours.
#include "operands.cuh"

#ifndef TILE_N
#define TILE_N 128
#endif
constexpr int TILE_M = 128, DEPTH = 8, EACH = 8, HALF = EACH / 2;
constexpr int ACROSS = TILE_N / EACH, THREADS = TILE_M / EACH * ACROSS;
constexpr int PITCH = TILE_M + 4;

struct __align__(16) Quad {
    float at[4];
};
__device__ __forceinline__ Quad widened(const Run<4> &run) {
    return {{widen(run.at[0]), widen(run.at[1]), widen(run.at[2]), widen(run.at[3])}};
}

extern "C" __global__ void __launch_bounds__(THREADS) product(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, const Sizes size) {
    __shared__ __align__(16) float lefts[DEPTH][PITCH], rights[DEPTH][TILE_N];
    const int first_row = blockIdx.x * TILE_M, first_column = blockIdx.y * TILE_N;
    const int row = threadIdx.x / ACROSS * HALF, column = threadIdx.x % ACROSS * HALF;
    float sum[EACH][EACH] = {};
    for (int start = 0; start < size.k; start += DEPTH) {
        for (int i = threadIdx.x; i < TILE_M * DEPTH / 4; i += THREADS) {
            const int line = i / (DEPTH / 4), depth = i % (DEPTH / 4) * 4;
            const Quad quad = widened(left_run<4>(a, size, first_row + line, start + depth));
#pragma unroll
            for (int j = 0; j < 4; j++) lefts[depth + j][line] = quad.at[j];
        }
        for (int i = threadIdx.x; i < TILE_N * DEPTH / 4; i += THREADS) {
            const int depth = i / (TILE_N / 4), line = i % (TILE_N / 4) * 4;
            *(Quad *)&rights[depth][line] = widened(right_run<4>(b, size, start + depth, first_column + line));
        }
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth++) {
            const Quad l[2] = {*(Quad *)&lefts[depth][row], *(Quad *)&lefts[depth][TILE_M / 2 + row]};
            const Quad r[2] = {*(Quad *)&rights[depth][column], *(Quad *)&rights[depth][TILE_N / 2 + column]};
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] += l[i / 4].at[i % 4] * r[j / 4].at[j % 4];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j += 4) {
            const int r = first_row + i / 4 * (TILE_M / 2) + row + i % 4, q = first_column + j / 4 * (TILE_N / 2) + column;
            Run<4> run;
#pragma unroll
            for (int l = 0; l < 4; l++) run.at[l] = narrow<T>(sum[i][j + l]);
            if (VECTOR && r < size.m && q < size.n) {
                *(Run<4> *)&c[(i64)r * size.n + q] = run;
            } else if (r < size.m) {
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    if (q + l < size.n) c[(i64)r * size.n + q + l] = run.at[l];
                }
            }
        }
    }
}
