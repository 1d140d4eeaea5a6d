// Rung 8, a pipeline: copies go from memory to shared memory in the background, several steps ahead, and a warp loads
// its operands four matrices at a time.
//
// `cp.async` needs no registers and no thread that waits for it, so three steps can be on their way at once; `ldmatrix`
// brings with one instruction what rung 7 brought with four, and transposes B on the way, which needs no transposed
// stores then.
#ifndef ELEMENT
#define ELEMENT bf16
#endif
#include "operands.cuh"
#include "ptx_tensor_cores.cuh"

#ifndef TILE_N
#define TILE_N 128
#endif
constexpr int TILE_M = 128, DEPTH = 32, STAGES = 4;
constexpr int WARP_M = 64, WARP_N = TILE_N < 32 ? TILE_N : 32, WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;

// Rows an odd number of 16 bytes apart: the eight rows of a matrix lie in different banks.
struct Stage {
    __align__(16) bf16 lefts[TILE_M][DEPTH + 8];
    __align__(16) bf16 rights[DEPTH][TILE_N + 8];

    __device__ __forceinline__ void fetch(const bf16 *a, const bf16 *b, const Sizes &size, int row, int column, int start) {
        for (int i = threadIdx.x; i < TILE_M * DEPTH / 8; i += THREADS) {
            const int line = i / (DEPTH / 8), depth = i % (DEPTH / 8) * 8;
            if (VECTOR) {
                const bf16 *at = left(a, size, row + line, start + depth);
                copy_16(&lefts[line][depth], at ? at : a, at);
            } else {
                *(Run<8> *)&lefts[line][depth] = left_run<8>(a, size, row + line, start + depth);
            }
        }
        for (int i = threadIdx.x; i < TILE_N * DEPTH / 8; i += THREADS) {
            const int depth = i / (TILE_N / 8), line = i % (TILE_N / 8) * 8;
            if (VECTOR) {
                const bf16 *at = right(b, size, start + depth, column + line);
                copy_16(&rights[depth][line], at ? at : b, at);
            } else {
                *(Run<8> *)&rights[depth][line] = right_run<8>(b, size, start + depth, column + line);
            }
        }
    }
};

// Dynamic shared memory: STAGES stages.
extern "C" __global__ void __launch_bounds__(THREADS) product(const bf16 *__restrict__ a, const bf16 *__restrict__ b, bf16 *__restrict__ c, const Sizes size) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage *stages = (Stage *)shared;
    const int first_row = blockIdx.x * TILE_M, first_column = blockIdx.y * TILE_N;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
    const int steps = (size.k + DEPTH - 1) / DEPTH;
    float sum[WARP_M / 16][WARP_N / 8][4] = {};
    // A group is committed at every step, empty or not, so that counting them tells which steps have arrived.
    for (int step = 0; step < STAGES - 1; step++) {
        if (step < steps) stages[step].fetch(a, b, size, first_row, first_column, step * DEPTH);
        copies_commit();
    }
    for (int step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        // The step has arrived for all threads, and all are done with the stage that is filled next.
        __syncthreads();
        const int ahead = step + STAGES - 1;
        if (ahead < steps) stages[ahead % STAGES].fetch(a, b, size, first_row, first_column, ahead * DEPTH);
        copies_commit();
        const Stage &stage = stages[step % STAGES];
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth += 16) {
            u32 l[WARP_M / 16][4], r[WARP_N / 16][4];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++) load_matrices(l[i], &stage.lefts[row + 16 * i + lane % 16][depth + lane / 16 * 8]);
#pragma unroll
            for (int j = 0; j < WARP_N / 16; j++) load_matrices_transposed(r[j], &stage.rights[depth + lane % 16][column + 16 * j + lane / 16 * 8]);
#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++) {
#pragma unroll
                for (int j = 0; j < WARP_N / 8; j++) {
                    const u32 half[2] = {r[j / 2][j % 2 * 2], r[j / 2][j % 2 * 2 + 1]};
                    multiply(sum[i][j], l[i], half);
                }
            }
        }
    }
    const int group = lane / 4, place = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++) {
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++) {
            const int r = first_row + row + 16 * i + group, q = first_column + column + 8 * j + place;
            store_pair(c, size, r, q, sum[i][j][0], sum[i][j][1]);
            store_pair(c, size, r + 8, q, sum[i][j][2], sum[i][j][3]);
        }
    }
}
