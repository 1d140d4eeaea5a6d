// Rung 7, tensor cores: a warp multiplies 16 × 16 by 16 × 8 matrices with one instruction.
//
// 2048 products and additions where an ordinary instruction of a warp makes 32: the arithmetic is now nearly free, and
// the whole time goes into bringing operands, word by word, from shared memory to the registers where the instruction
// wants them.
#ifndef ELEMENT
#define ELEMENT bf16
#endif
#include "operands.cuh"
#include "ptx_tensor_cores.cuh"

#ifndef TILE_N
#define TILE_N 128
#endif
constexpr int TILE_M = 128, DEPTH = 32;
constexpr int WARP_M = 64, WARP_N = TILE_N < 32 ? TILE_N : 32, WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;
// Eight more than needed: rows then begin four banks apart, and a warp's reads meet no bank twice.
constexpr int PITCH = DEPTH + 8;

__device__ __forceinline__ u32 pair(const bf16 *at) { return *(const u32 *)at; }

extern "C" __global__ void __launch_bounds__(THREADS) product(const bf16 *__restrict__ a, const bf16 *__restrict__ b, bf16 *__restrict__ c, const Sizes size) {
    // Both with the depth innermost: two neighbours in depth are one register of an operand.
    __shared__ __align__(16) bf16 lefts[TILE_M][PITCH], rights[TILE_N][PITCH];
    const int first_row = blockIdx.x * TILE_M, first_column = blockIdx.y * TILE_N;
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4 * 2;
    const int row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
    float sum[WARP_M / 16][WARP_N / 8][4] = {};
    for (int start = 0; start < size.k; start += DEPTH) {
        for (int i = threadIdx.x; i < TILE_M * DEPTH / 8; i += THREADS) {
            const int line = i / (DEPTH / 8), depth = i % (DEPTH / 8) * 8;
            *(Run<8> *)&lefts[line][depth] = left_run<8>(a, size, first_row + line, start + depth);
        }
        for (int i = threadIdx.x; i < TILE_N * DEPTH / 8; i += THREADS) {
            const int depth = i / (TILE_N / 8), line = i % (TILE_N / 8) * 8;
            const Run<8> run = right_run<8>(b, size, start + depth, first_column + line);
#pragma unroll
            for (int j = 0; j < 8; j++) rights[line + j][depth] = run.at[j];
        }
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth += 16) {
            u32 l[WARP_M / 16][4], r[WARP_N / 8][2];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++) {
#pragma unroll
                for (int part = 0; part < 4; part++) l[i][part] = pair(&lefts[row + 16 * i + group + part % 2 * 8][depth + place + part / 2 * 8]);
            }
#pragma unroll
            for (int j = 0; j < WARP_N / 8; j++) {
#pragma unroll
                for (int part = 0; part < 2; part++) r[j][part] = pair(&rights[column + 8 * j + group][depth + place + part * 8]);
            }
#pragma unroll
            for (int i = 0; i < WARP_M / 16; i++) {
#pragma unroll
                for (int j = 0; j < WARP_N / 8; j++) multiply(sum[i][j], l[i], r[j]);
            }
        }
        __syncthreads();
    }
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
