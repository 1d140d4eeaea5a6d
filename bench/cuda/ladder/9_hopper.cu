// Rung 9, Hopper: four warps together multiply straight from shared memory (`wgmma`), and a copy engine fills it.
//
// Operands no longer pass through registers, whose ports were the limit of rung 8, and one thread starts the copy of a
// whole tile, addresses, edges and all: the other threads spend no instruction on it. For a convolution the engine even
// gathers the windows. Copies and products meet at barriers in shared memory that count the bytes arrived, so neither
// side waits for the other longer than it must. This is the kernel that ships, without its refinements.
#ifndef ELEMENT
#define ELEMENT bf16
#endif
#include "operands.cuh"
#include "ptx_wgmma.cuh"

#ifndef TILE_N
#define TILE_N 128
#endif

struct __align__(64) Maps {
    TensorMap left, right;
};

// Nothing for other GPUs.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Rows of 64 values are 128 bytes, the widest pattern in which engine and products both scatter them over the banks.
constexpr int TILE_M = 128, DEPTH = 64, STAGES = 3, GROUPS = TILE_M / 64;
constexpr u32 LEFT_BYTES = TILE_M * DEPTH * 2, RIGHT_BYTES = DEPTH * TILE_N * 2, STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES;

// A matrix in shared memory as the products want it described: the pattern of 128 bytes, groups of eight lines 1024
// bytes apart, and for the columns of B the next 64 of them `next` bytes further.
__device__ __forceinline__ u64 described(u32 address, u32 next) {
    return 1ull << 62 | (u64)(1024 >> 4) << 32 | (u64)(next >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// Has the engine bring one step's tiles.
__device__ __forceinline__ void bring(const Maps &maps, u32 to, u32 full, int row, int column, int depth) {
    barrier_expect(full, STAGE_BYTES);
#if CONVOLUTION
    constexpr int OUT = (SIZE + 2 * PADDING - FILTER) / STRIDE + 1;
    const int image = row / (OUT * OUT), pixel = row % (OUT * OUT), tap = depth / CHANNELS;
    copy_pixels(to, &maps.left, full, depth % CHANNELS, pixel % OUT * STRIDE - PADDING, pixel / OUT * STRIDE - PADDING, image, tap % FILTER, tap / FILTER);
#else
    copy_box(to, &maps.left, full, depth, row);
#endif
    for (int i = 0; i < TILE_N / 64; i++) copy_box(to + LEFT_BYTES + i * 64 * DEPTH * 2, &maps.right, full, column + 64 * i, depth);
}

// Dynamic shared memory: STAGES stages, two barriers for each.
extern "C" __global__ void __launch_bounds__(128 * GROUPS + 32, 2) product(const __grid_constant__ Maps maps, bf16 *__restrict__ c, const Sizes size) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const u32 stages = address_of(shared), full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    const int first_row = blockIdx.x * TILE_M, first_column = blockIdx.y * TILE_N;
    const int steps = (size.k + DEPTH - 1) / DEPTH;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_begin(full + 8 * i, 1);
            barrier_begin(empty + 8 * i, GROUPS);
        }
        barriers_begun();
    }
    __syncthreads();

    if (threadIdx.x >= 128 * GROUPS) {
        if (threadIdx.x == 128 * GROUPS) {
            for (int step = 0; step < steps; step++) {
                const int stage = step % STAGES, turn = step / STAGES;
                // In its first turn a stage is free: the turn before the first counts as ended.
                barrier_wait(empty + 8 * stage, (turn & 1) ^ 1);
                bring(maps, stages + stage * STAGE_BYTES, full + 8 * stage, first_row, first_column, step * DEPTH);
            }
        }
        return;
    }

    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    float sums[TILE_N / 2];
    for (int step = 0; step < steps; step++) {
        const int stage = step % STAGES, turn = step / STAGES;
        const u32 lefts = stages + stage * STAGE_BYTES + group * 64 * DEPTH * 2, rights = stages + stage * STAGE_BYTES + LEFT_BYTES;
        barrier_wait(full + 8 * stage, turn & 1);
        products_begin();
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth += 16) {
            multiply_group(sums, described(lefts + depth * 2, 16), described(rights + depth * 128, 64 * DEPTH * 2), step | depth);
        }
        products_finish();
        if (thread == 0) barrier_arrive(empty + 8 * stage);
    }
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i++) settle(sums[i]);

    const int row = first_row + group * 64 + thread / 32 * 16 + thread % 32 / 4, column = first_column + thread % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; j++) {
        store_pair(c, size, row, column + 8 * j, sums[4 * j], sums[4 * j + 1]);
        store_pair(c, size, row + 8, column + 8 * j, sums[4 * j + 2], sums[4 * j + 3]);
    }
}
#endif
