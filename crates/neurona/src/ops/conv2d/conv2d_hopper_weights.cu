// Convolution weight gradient on Hopper's tensor cores, f16 and bf16, NHWC, groups = 1: a matrix product whose rows are output channels,
// whose columns are (filter tap, block of B_CHUNK input channels), and whose sum runs over all output pixels. Shares of the work go to
// slots of f32, which a second kernel adds in a fixed order.
//
// Limits: those of conv2d_hopper.cu; SLAB = 1: stride 1, padding at most (taps - 1) dilation, at most TILE_N / B_CHUNK taps.
// Workspace: 4 (shares + tiles_m tiles_n) TILE_M TILE_N bytes.
//
// conv2d_hopper_weights: A_ROWS = B_ROWS = 1, OUTPUT = 0, A_CHUNK = 64; grid shares = min(multiprocessors BLOCKS_PER_SM, tiles_m tiles_n steps);
//   block THREADS; dynamic shared memory STAGES (2 DEPTH (TILE_M + TILE_N) + 16), with SLAB STAGES (2 DEPTH TILE_M + slab_bytes + 16).
//   gradient  tiled map: sizes {out channels, pixels}; box {A_CHUNK, DEPTH}; swizzle 2 A_CHUNK bytes.
//             SLAB: im2col map: sizes {out channels, w, h, n} of the gradient; lower corner {0, 0}; upper corner {plan.width - w, plan.height - h};
//             A_CHUNK channels per pixel, DEPTH pixels per column
//   input     im2col map: sizes {in channels, w, h, n}; lower corner {low_w, low_h}; upper corner {low_w + (width - 1) step_w + 1 - w, the same of
//             h}; B_CHUNK channels per pixel, DEPTH pixels per column; element strides {1, step_w, step_h, 1}; swizzle 2 B_CHUNK bytes.
//             SLAB: upper corner {0, 0}, a slab's pixels per column: DEPTH + (taps_h - 1) offset_h width + (taps_w - 1) offset_w, rounded up
//             to 512 / B_CHUNK
// conv2d_hopper_weights_sum: the same macros; grid (out channels / 8 times in channels / 32 rounded up, taps / some rounded up); block (32, slices
//   times the taps summed at a time); dynamic shared memory 1024 (some + warps) bytes.
#ifndef A_ROWS
#define A_ROWS 1
#define B_ROWS 1
#endif
#ifndef OUTPUT
#define OUTPUT 0
#endif
#ifndef SLAB
#define SLAB 0
#endif
#include "hopper.cuh"
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct WeightPlan {
    int height, width;         // output pixels per image; SLAB: padded pixels, of the input plus the padding once
    int skip_n, skip_h, skip_w; // DEPTH pixels as images, lines of pixels, pixels
    int low_h, low_w;          // minus the padding
    int step_h, step_w;        // the stride
    int taps_w;                // filter width
    int offset_h, offset_w;    // the dilation
    int blocks;                // blocks of B_CHUNK input channels
    int chunks;                // taps times blocks; SLAB: taps
    int channels;              // input channels
    int tiles_m, tiles_n;      // tiles of TILE_M output channels, of TILE_N columns
    int steps;                 // blocks of DEPTH pixels
    int shares;                // blocks of the grid
    u32 slab_bytes;            // SLAB alone: pixels of a slab times 2 B_CHUNK, a multiple of 1024
};

// Walks over output pixels, DEPTH at a time, without dividing.
struct Pixels {
    int n, p, q;
    __device__ __forceinline__ Pixels(const WeightPlan &plan, int pixel) {
        int line = pixel / plan.width;
        n = line / plan.height;
        q = pixel - line * plan.width;
        p = line - n * plan.height;
    }
    __device__ __forceinline__ void next(const WeightPlan &plan) {
        q += plan.skip_w;
        p += plan.skip_h;
        n += plan.skip_n;
        if (q >= plan.width) { q -= plan.width; ++p; }
        if (p >= plan.height) { p -= plan.height; ++n; }
    }
};

#if SLAB
// Stride 1: all taps of a block of DEPTH pixels see one run of pixels of the padded input, a slab that comes once; a tap is a row to start
// from (the swizzle goes by address, so that any row can be the first). Pixels that are no outputs bring a gradient of zero.
// TILE_M = 64, TILE_N = TAPS B_CHUNK, GROUPS_M = 1; each group has TAPS / GROUPS_N taps. A tile is a block of input channels.
HOPPER_KERNEL conv2d_hopper_weights(const __grid_constant__ TensorMap gradient, const __grid_constant__ TensorMap input, float *slots,
                                    const __grid_constant__ WeightPlan plan) {
    extern __shared__ __align__(1024) unsigned char shared[];
    u32 stage_bytes = A_BYTES + plan.slab_bytes;
    Room room(shared, STAGES * stage_bytes);
    room.prepare();
    Shares shares(plan.tiles_m * plan.tiles_n, plan.steps, plan.shares, blockIdx.x);
    Walk walk;
    if (threadIdx.x >= SUM_THREADS) {
        if (threadIdx.x == SUM_THREADS)
            while (shares.next()) {
                int row = shares.tile % plan.tiles_m * TILE_M, channel = shares.tile / plan.tiles_m * B_CHUNK;
                Pixels at(plan, shares.step * DEPTH);
                for (int step = shares.step; step < shares.last; ++step) {
                    u32 to = stage_for_copies(room, walk, stage_bytes), full = room.full + 8 * walk.stage;
                    copy_pixels(to, &gradient, full, row, at.q, at.p, at.n, 0, 0);
                    copy_pixels(to + A_BYTES, &input, full, channel, plan.low_w + at.q, plan.low_h + at.p, at.n, 0, 0);
                    at.next(plan);
                    walk.next();
                }
            }
    } else {
        constexpr int TAPS_EACH = GROUP_COLUMNS / B_CHUNK;
        int group = threadIdx.x / 128;
        u32 shift[TAPS_EACH];
#pragma unroll
        for (int i = 0; i < TAPS_EACH; ++i) {
            int tap = group * TAPS_EACH + i;
            // Taps past the last give columns that nobody reads.
            int rows = tap / plan.taps_w * plan.offset_h * plan.width + tap % plan.taps_w * plan.offset_w;
            shift[i] = tap < plan.chunks ? rows * (B_CHUNK * 2 >> 4) : 0;
        }
        u64 a = describe<1, A_CHUNK>(room.stages), b = describe<1, B_CHUNK>(room.stages + A_BYTES);
        while (shares.next()) {
            Sums sums;
            u32 previous = 0;
            for (int step = shares.step; step < shares.last; ++step) {
                barrier_wait(room.full + 8 * walk.stage, walk.turn);
                wgmma_begin();
                u32 at = walk.stage * (stage_bytes >> 4);
#pragma unroll
                for (int k = 0; k < DEPTH; k += 16)
#pragma unroll
                    for (int i = 0; i < TAPS_EACH; ++i)
                        wgmma<1, 1>(*(float(*)[B_CHUNK / 2]) & sums[0][i * (B_CHUNK / 2)], moved(a, at + (k * A_CHUNK * 2 >> 4)),
                                    moved(b, at + shift[i] + (k * B_CHUNK * 2 >> 4)), (step - shares.step) | k, (ELEMENT *)0);
                wgmma_commit();
                wgmma_wait<1>();
                if (step > shares.step) release(room, previous);
                previous = walk.stage;
                walk.next();
            }
            wgmma_wait<0>();
            release(room, previous);
            settle(sums);
            keep(sums, slots, shares, group);
        }
    }
}
#else
HOPPER_KERNEL conv2d_hopper_weights(const __grid_constant__ TensorMap gradient, const __grid_constant__ TensorMap input, float *slots,
                                    const __grid_constant__ WeightPlan plan) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Room room(shared);
    room.prepare();
    Shares shares(plan.tiles_m * plan.tiles_n, plan.steps, plan.shares, blockIdx.x);
    Walk walk;
    if (threadIdx.x >= SUM_THREADS) {
        if (threadIdx.x == SUM_THREADS)
            while (shares.next()) {
                int row = shares.tile % plan.tiles_m * TILE_M;
                // Divisions stay out of the loop: one thread feeds the whole block.
                constexpr int COPIES = TILE_N / B_CHUNK;
                int channel[COPIES], offsets[COPIES];
#pragma unroll
                for (int i = 0; i < COPIES; ++i) {
                    int chunk = shares.tile / plan.tiles_m * COPIES + i, tap = chunk / plan.blocks;
                    // Columns past the last bring zeros.
                    channel[i] = chunk < plan.chunks ? chunk % plan.blocks * B_CHUNK : plan.channels;
                    offsets[i] = chunk < plan.chunks ? tap % plan.taps_w * plan.offset_w | tap / plan.taps_w * plan.offset_h << 16 : 0;
                }
                Pixels at(plan, shares.step * DEPTH);
                for (int step = shares.step; step < shares.last; ++step) {
                    u32 to = stage_for_copies(room, walk), full = room.full + 8 * walk.stage;
#pragma unroll
                    for (int i = 0; i < TILE_M / A_CHUNK; ++i)
                        copy_2d(to + i * A_CHUNK * DEPTH * 2, &gradient, full, row + i * A_CHUNK, step * DEPTH);
                    int w = plan.low_w + at.q * plan.step_w, h = plan.low_h + at.p * plan.step_h;
#pragma unroll
                    for (int i = 0; i < COPIES; ++i)
                        copy_pixels(to + A_BYTES + i * B_CHUNK * DEPTH * 2, &input, full, channel[i], w, h, at.n, offsets[i], offsets[i] >> 16);
                    at.next(plan);
                    walk.next();
                }
            }
    } else {
        int group = threadIdx.x / 128;
        while (shares.next()) {
            Sums sums;
            multiply(sums, room, walk, shares.last - shares.step, group);
            keep(sums, slots, shares, group);
        }
    }
}

#endif

// Adds the slots of every weight in the order of the shares and writes OIHW. A block has SUM_ROWS output channels, 32 input channels
// and `some` taps, through shared memory: the taps of a weight lie next to each other in the result, its channels in the slots. Warps:
// `slices` for every tap that is summed at the same time, each adding every slices-th slot; slices are added in their order.
#ifndef OUT_ELEMENT
#define OUT_ELEMENT float
#endif
constexpr int SUM_ROWS = 8;
extern "C" __global__ void conv2d_hopper_weights_sum(const float *slots, OUT_ELEMENT *weights, int taps, int some, int slices,
                                                     const __grid_constant__ WeightPlan plan) {
    extern __shared__ float room[];
    int first = blockIdx.y * some, count = min(some, taps - first), width = 32 * count;
    float *parts = room + SUM_ROWS * 32 * some;
    int lane = threadIdx.x, warp = threadIdx.y, slice = warp % slices, across = blockDim.y / slices;
    int runs = (plan.channels + 31) / 32, k = blockIdx.x / runs * SUM_ROWS, start = blockIdx.x % runs * 32, c = start + lane;
    for (int base = 0; base < count; base += across) {
        int tap = base + warp / slices;
        float sums[SUM_ROWS] = {};
        if (tap < count && c < plan.channels) {
            int chunk = SLAB ? c / B_CHUNK * (TILE_N / B_CHUNK) + first + tap : (first + tap) * plan.blocks + c / B_CHUNK;
            int column = chunk * B_CHUNK + c % B_CHUNK, tile = column / TILE_N * plan.tiles_m + k / TILE_M;
            Holders holders(plan.tiles_m * plan.tiles_n, plan.steps, plan.shares, tile);
            const float *from = slots + ((i64)tile * TILE_M + k % TILE_M) * TILE_N + column % TILE_N;
#pragma unroll 2
            for (int i = holders.first + slice; i <= holders.last; i += slices)
#pragma unroll
                for (int row = 0; row < SUM_ROWS; ++row) sums[row] += from[(i64)i * (TILE_M * TILE_N) + row * TILE_N];
        }
        if (slices > 1) {
#pragma unroll
            for (int row = 0; row < SUM_ROWS; ++row) parts[(warp * SUM_ROWS + row) * 32 + lane] = sums[row];
            __syncthreads();
            if (slice == 0)
                for (int i = 1; i < slices; ++i)
#pragma unroll
                    for (int row = 0; row < SUM_ROWS; ++row) sums[row] += parts[((warp + i) * SUM_ROWS + row) * 32 + lane];
            __syncthreads();
        }
        if (slice == 0 && tap < count)
#pragma unroll
            for (int row = 0; row < SUM_ROWS; ++row) room[row * width + lane * count + tap] = sums[row];
    }
    __syncthreads();
    int channels = min(32, plan.channels - start);
    for (int row = warp; row < SUM_ROWS; row += blockDim.y) {
        OUT_ELEMENT *to = weights + ((i64)(k + row) * plan.channels + start) * taps + first;
        for (int i = lane; i < channels * count; i += 32) to[count == taps ? i : i / count * taps + i % count] = narrow<OUT_ELEMENT>(room[row * width + i]);
    }
}
#endif
