// Rung 6, double buffer: the next tile is on its way while this one is multiplied.
//
// Memory takes some 500 cycles to answer; rung 5 waits for it at every step. Here the loads of a step are issued before
// the products of the step before, land in registers, and go to the other of two tiles in shared memory: one barrier a
// step instead of two, and nobody waits.
#include "operands.cuh"

#ifndef TILE_N
#define TILE_N 128
#endif
constexpr int TILE_M = 128, DEPTH = 8, EACH = 8, HALF = EACH / 2;
constexpr int ACROSS = TILE_N / EACH, THREADS = TILE_M / EACH * ACROSS;
constexpr int PITCH = TILE_M + 4;
constexpr int LEFT_LOADS = TILE_M * DEPTH / 4 / THREADS, RIGHT_LOADS = TILE_N * DEPTH / 4 / THREADS;
static_assert(LEFT_LOADS * THREADS * 4 == TILE_M * DEPTH && RIGHT_LOADS * THREADS * 4 == TILE_N * DEPTH, "every thread loads as much");

struct __align__(16) Quad {
    float at[4];
};
__device__ __forceinline__ Quad widened(const Run<4> &run) {
    return {{widen(run.at[0]), widen(run.at[1]), widen(run.at[2]), widen(run.at[3])}};
}

struct Stage {
    __align__(16) float lefts[DEPTH][PITCH], rights[DEPTH][TILE_N];
};

// A step's operands on their way from memory to shared memory.
struct Load {
    Run<4> lefts[LEFT_LOADS], rights[RIGHT_LOADS];

    static __device__ __forceinline__ int left_line(int i) { return (threadIdx.x + i * THREADS) / (DEPTH / 4); }
    static __device__ __forceinline__ int left_depth(int i) { return (threadIdx.x + i * THREADS) % (DEPTH / 4) * 4; }
    static __device__ __forceinline__ int right_line(int i) { return (threadIdx.x + i * THREADS) % (TILE_N / 4) * 4; }
    static __device__ __forceinline__ int right_depth(int i) { return (threadIdx.x + i * THREADS) / (TILE_N / 4); }

    __device__ __forceinline__ void fetch(const T *a, const T *b, const Sizes &size, int row, int column, int start) {
#pragma unroll
        for (int i = 0; i < LEFT_LOADS; i++) lefts[i] = left_run<4>(a, size, row + left_line(i), start + left_depth(i));
#pragma unroll
        for (int i = 0; i < RIGHT_LOADS; i++) rights[i] = right_run<4>(b, size, start + right_depth(i), column + right_line(i));
    }
    __device__ __forceinline__ void store(Stage &stage) const {
#pragma unroll
        for (int i = 0; i < LEFT_LOADS; i++) {
            const Quad quad = widened(lefts[i]);
#pragma unroll
            for (int j = 0; j < 4; j++) stage.lefts[left_depth(i) + j][left_line(i)] = quad.at[j];
        }
#pragma unroll
        for (int i = 0; i < RIGHT_LOADS; i++) *(Quad *)&stage.rights[right_depth(i)][right_line(i)] = widened(rights[i]);
    }
};

// Two blocks of 256 threads must fit a multiprocessor: one multiplies while the other waits at its barrier.
extern "C" __global__ void __launch_bounds__(THREADS, THREADS < 128 ? 1 : 512 / THREADS) product(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, const Sizes size) {
    __shared__ Stage stages[2];
    const int first_row = blockIdx.x * TILE_M, first_column = blockIdx.y * TILE_N;
    const int row = threadIdx.x / ACROSS * HALF, column = threadIdx.x % ACROSS * HALF;
    float sum[EACH][EACH] = {};
    Load load;
    load.fetch(a, b, size, first_row, first_column, 0);
    load.store(stages[0]);
    __syncthreads();
    for (int start = 0, now = 0; start < size.k; start += DEPTH, now ^= 1) {
        const bool more = start + DEPTH < size.k;
        if (more) load.fetch(a, b, size, first_row, first_column, start + DEPTH);
        const Stage &stage = stages[now];
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth++) {
            const Quad l[2] = {*(Quad *)&stage.lefts[depth][row], *(Quad *)&stage.lefts[depth][TILE_M / 2 + row]};
            const Quad r[2] = {*(Quad *)&stage.rights[depth][column], *(Quad *)&stage.rights[depth][TILE_N / 2 + column]};
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] += l[i / 4].at[i % 4] * r[j / 4].at[j % 4];
            }
        }
        if (more) load.store(stages[now ^ 1]);
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
