// Matrix product [m, n] = A B on Hopper's tensor cores, f16 and bf16, for every way A and B can lie in memory.
//
// Limits: the contiguous size of A, of B, and n are multiples of 8 (rows of 16 bytes); sizes below 2^30.
//
// A_ROWS: A is [k, m] in memory, not [m, k]. B_ROWS: B is [k, n] in memory, not [n, k].
//   a    tiled map: A_ROWS: sizes {m, k}, box {A_CHUNK, DEPTH}; else sizes {k, m}, box {A_CHUNK, TILE_M}; swizzle 2 A_CHUNK bytes; dense
//   b    the same of n, B_CHUNK, TILE_N
//   out  tiled map: sizes {n, m}, box {OUT_CHUNK, 64}, swizzle 2 OUT_CHUNK bytes
//   bias [n] or null: out = relu(A B + bias)
//   mask [m, n] of the result's type, with MASKED: out is zero where it is not above zero
// matmul_hopper (OUTPUT = 1): grid min(tiles, multiprocessors BLOCKS_PER_SM); block THREADS; dynamic shared memory as hopper.cuh says.
// matmul_hopper_shares (OUTPUT = 0): grid shares, at most tiles steps; then
// matmul_hopper_sum: grid m n / 128 rounded up; block (32, slices of slots summed at a time, at most 32); result in OUT_ELEMENT.
//   Workspace: 4 (shares + tiles) TILE_M TILE_N bytes.
#include "hopper.cuh"
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Has the copy engine bring step `step` of the tile at (row, column).
__device__ __forceinline__ void bring(const Room &room, Walk &walk, const TensorMap *a, const TensorMap *b, int row, int column, int step) {
    constexpr int A_COPIES = A_ROWS ? TILE_M / A_CHUNK : DEPTH / A_CHUNK, B_COPIES = B_ROWS ? TILE_N / B_CHUNK : DEPTH / B_CHUNK;
    u32 to = stage_for_copies(room, walk), full = room.full + 8 * walk.stage;
    int at = step * DEPTH;
#pragma unroll
    for (int i = 0; i < A_COPIES; ++i)
        copy_2d(to + i * (A_BYTES / A_COPIES), a, full, (A_ROWS ? row : at) + i * A_CHUNK, A_ROWS ? at : row);
#pragma unroll
    for (int i = 0; i < B_COPIES; ++i)
        copy_2d(to + A_BYTES + i * (B_BYTES / B_COPIES), b, full, (B_ROWS ? column : at) + i * B_CHUNK, B_ROWS ? at : column);
    walk.next();
}

#if OUTPUT
// Tiles are taken in bands of this many rows of tiles, so that blocks running together share A and B in the L2 cache.
#ifndef BAND
#define BAND 8
#endif
struct Tile {
    int row, column;
    __device__ __forceinline__ Tile(int index, int tiles_m, int tiles_n) {
        int band = index / (BAND * tiles_n) * BAND, inside = index % (BAND * tiles_n), height = min(BAND, tiles_m - band);
        row = (band + inside % height) * TILE_M;
        column = inside / height * TILE_N;
    }
};

HOPPER_KERNEL matmul_hopper(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap out,
                            const BIAS_ELEMENT *bias, const ELEMENT *mask, int m, int n, int k, int relu) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Room room(shared);
    room.prepare();
    int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, steps = (k + DEPTH - 1) / DEPTH;
    Walk walk;
    if (threadIdx.x >= SUM_THREADS) {
        if (threadIdx.x == SUM_THREADS)
            for (int index = blockIdx.x; index < tiles_m * tiles_n; index += gridDim.x) {
                Tile tile(index, tiles_m, tiles_n);
                for (int step = 0; step < steps; ++step) bring(room, walk, &a, &b, tile.row, tile.column, step);
            }
    } else {
        int group = threadIdx.x / 128;
        u32 piece = 0;
        for (int index = blockIdx.x; index < tiles_m * tiles_n; index += gridDim.x) {
            Tile tile(index, tiles_m, tiles_n);
            Sums sums;
            multiply(sums, room, walk, steps, group);
            int column = tile.column + group / GROUPS_M * GROUP_COLUMNS, row = tile.row + group % GROUPS_M * GROUP_ROWS;
            finish(sums, room, group, piece, column, Finish{0, bias, n, relu, mask, m, row},
                   [&](u32 from, int down, int across) {
                       if (threadIdx.x % 128) return;
                       store_2d(&out, from, column + across, row + down);
                       store_commit();
                   });
        }
        if ((threadIdx.x & 127) == 0) store_wait<0>();
    }
}
#else
// For results of few tiles and long sums: all multiprocessors share the steps of all tiles.
HOPPER_KERNEL matmul_hopper_shares(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float *slots, int tiles_m,
                                   int tiles_n, int steps) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Room room(shared);
    room.prepare();
    Shares shares(tiles_m * tiles_n, steps, gridDim.x, blockIdx.x);
    Walk walk;
    if (threadIdx.x >= SUM_THREADS) {
        if (threadIdx.x == SUM_THREADS)
            while (shares.next())
                for (int step = shares.step; step < shares.last; ++step)
                    bring(room, walk, &a, &b, shares.tile % tiles_m * TILE_M, shares.tile / tiles_m * TILE_N, step);
    } else {
        int group = threadIdx.x / 128;
        while (shares.next()) {
            Sums sums;
            multiply(sums, room, walk, shares.last - shares.step, group);
            keep(sums, slots, shares, group);
        }
    }
}

// Adds the slots of every element in the order of the shares. Threads (32, slices): a lane has four elements of a row. n is a multiple
// of four.
#ifndef OUT_ELEMENT
#define OUT_ELEMENT ELEMENT
#endif
extern "C" __global__ void matmul_hopper_sum(const float *slots, const BIAS_ELEMENT *bias, const OUT_ELEMENT *mask, OUT_ELEMENT *out, int m, int n,
                                             int tiles_m, int tiles_n, int steps, int shares, int relu) {
    __shared__ float4 parts[32][32];
    u32 quarter = n / 4;
    i64 place = (i64)blockIdx.x * 32 + threadIdx.x;
    int row = (int)(place / quarter), column = (int)(place - (i64)row * quarter) * 4;
    float4 sum = {};
    if (row < m) {
        int tile = column / TILE_N * tiles_m + row / TILE_M;
        sum = sum_slots<float4>(slots, Holders(tiles_m * tiles_n, steps, shares, tile), tile, row % TILE_M, column % TILE_N, threadIdx.y, blockDim.y);
    }
    if (blockDim.y > 1) {
        parts[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y) return;
        for (int i = 1; i < blockDim.y; ++i) sum = plus(sum, parts[i][threadIdx.x]);
    }
    if (row >= m) return;
    float all[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float value = bias ? all[i] + widen(bias[column + i]) : all[i];
        i64 at = (i64)row * n + column + i;
        bool zero = relu && value < 0 || MASKED && !(widen(mask[at]) > 0);
        out[at] = narrow<OUT_ELEMENT>(zero ? 0.0f : value);
    }
}
#endif
#endif
