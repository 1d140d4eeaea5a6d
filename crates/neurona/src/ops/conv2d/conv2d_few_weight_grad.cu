// The gradients by filters and bias of images with few channels, on tensor cores.
//
// A block goes through tiles of TILE_H × TILE_W outputs; 16 pixels at a time are summed. A warp has TAKEN matrices of 16
// depths and all output channels in registers; GROUPS warps have all depths, and SLICES such groups share the pixels. What a
// bias needs is one more depth, of ones.
//
// ELEMENT: type of the images. CHANNELS, WANTED: of input and output. R, S: taps.
#include "window_rows.cuh"

#ifndef ELEMENT
#define ELEMENT bf16
#endif
#ifndef CHANNELS
#define CHANNELS 3
#define WANTED 32
#define R 3
#define S 3
#define STRIDE_H 1
#define STRIDE_W 1
#define TILE_H 8
#define TILE_W 32
#define TAKEN 2
#define GROUPS 1
#define SLICES 4
#endif

typedef ELEMENT T;
typedef WindowRows<T, CHANNELS, R, S, STRIDE_H, STRIDE_W, TILE_H, TILE_W> Windows;

constexpr int THREADS = 32 * GROUPS * SLICES;
constexpr int COLUMNS = (WANTED + 7) / 8, PAIRS = (COLUMNS + 1) / 2;
constexpr int PIXELS = Windows::MATRICES * 16;
// Eight pixels' runs of 8 channels lie in different banks.
constexpr int PITCH = PAIRS * 16 + 8;
// The depth of the ones: the place that an odd row has left, or the one after all.
constexpr int ONES = Windows::WINDOW % 2 == 1 ? Windows::WINDOW : Windows::DEPTHS;
constexpr int DEPTH = GROUPS * TAKEN * 16, WIDTH = COLUMNS * 8;
static_assert(ONES < DEPTH, "all depths have a warp");

union Shared {
    struct {
        __align__(16) T gradient[2][PIXELS][PITCH];
        __align__(16) T rows[Windows::SIZE];
    };
    float sum[DEPTH][WIDTH];
};

struct Frame {
    int h, w, p, q, padding_h, padding_w;
    int tiles_h, tiles_w, tiles;
};

struct Place {
    int w, h;
    i64 image;
};
__device__ __forceinline__ Place place(int tile, const Frame &f) {
    return {tile % f.tiles_w * TILE_W, tile / f.tiles_w % f.tiles_h * TILE_H, tile / f.tiles_w / f.tiles_h};
}

// Starts the way of the output's gradient under a tile into shared memory. Channels that are not there were cleared before.
__device__ __forceinline__ void bring_gradient(T (&to)[PIXELS][PITCH], const T *dy, Place at, const Frame &f) {
    constexpr int UNIT = WANTED % 8 == 0 ? 8 : WANTED % 4 == 0 ? 4 : WANTED % 2 == 0 ? 2 : 1, UNITS = WANTED / UNIT;
    const T *const image = dy + at.image * f.p * f.q * WANTED;
    for (int unit = threadIdx.x; unit < PIXELS * UNITS; unit += THREADS) {
        const int pixel = unit / UNITS, channel = unit % UNITS * UNIT, y = at.h + pixel / TILE_W, x = at.w + pixel % TILE_W;
        const bool there = pixel < Windows::PIXELS && y < f.p && x < f.q;
        const T *const from = there ? &image[((i64)y * f.q + x) * WANTED + channel] : dy;
        if constexpr (UNIT == 8) cp_async_16(&to[pixel][channel], from, there);
        else if constexpr (UNIT == 4) cp_async_8(&to[pixel][channel], from, there);
        else if constexpr (UNIT == 2) cp_async_4(&to[pixel][channel], from, there);
        else to[pixel][channel] = there ? *from : T{};
    }
    cp_async_commit();
}

// Blocks: x, each with every gridDim.x-th tile. `parts`: [block][k][tap][channel]; `bias_parts`: [block][k] or null.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
conv2d_few_weight_grad(const T *__restrict__ images, const T *__restrict__ dy, float *__restrict__ parts, float *__restrict__ bias_parts, const Frame f) {
    take_turn();
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, quarter = lane % 4;
    const int group = warp % GROUPS, slice = warp / GROUPS;

    float sum[TAKEN][COLUMNS][4];
#pragma unroll
    for (int i = 0; i < TAKEN; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int l = 0; l < 4; l++) sum[i][j][l] = 0.0f;
    if (WANTED % 16 != 0)
        for (int at = threadIdx.x; at < 2 * PIXELS * PITCH; at += THREADS) (&shared.gradient[0][0][0])[at] = T{};
    // Line i of a matrix is depth 2i, line i + 8 the one after it: one read has both.
    typename Windows::Pair pairs[TAKEN];
    u32 ones[TAKEN];
#pragma unroll
    for (int i = 0; i < TAKEN; i++) {
        const int depth = (group * TAKEN + i) * 16 + line * 2;
        pairs[i] = depth < Windows::DEPTHS ? Windows::pair(depth) : typename Windows::Pair{0, 0u};
        ones[i] = depth == ONES / 2 * 2 ? (u32)narrow<T>(1.0f).bits << ONES % 2 * 16 : 0u;
    }
    __syncthreads();

    int stage = 0;
    if (blockIdx.x < f.tiles) bring_gradient(shared.gradient[0], dy, place(blockIdx.x, f), f);
    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x, stage ^= 1) {
        const Place at = place(tile, f);
        // The next tile's gradient is on its way while this one's is multiplied.
        if (tile + (int)gridDim.x < f.tiles) bring_gradient(shared.gradient[stage ^ 1], dy, place(tile + gridDim.x, f), f);
        else cp_async_commit();
        Windows::template bring<THREADS>(shared.rows, images + at.image * f.h * f.w * CHANNELS, f.h, f.w, at.h * STRIDE_H - f.padding_h, at.w * STRIDE_W - f.padding_w);
        cp_async_wait<1>();
        __syncthreads();
        for (int matrix = slice; matrix < Windows::MATRICES; matrix += SLICES) {
            const int pixel = matrix * 16 + quarter * 2;
            const int begin[4] = {Windows::begin(pixel), Windows::begin(pixel + 1), Windows::begin(pixel + 8), Windows::begin(pixel + 9)};
            u32 right[PAIRS][4];
#pragma unroll
            for (int j = 0; j < PAIRS; j++)
                ldmatrix_x4_transposed(right[j], &shared.gradient[stage][matrix * 16 + lane % 16][j * 16 + lane / 16 * 8]);
#pragma unroll
            for (int i = 0; i < TAKEN; i++) {
                u32 values[4], left[4];
#pragma unroll
                for (int l = 0; l < 4; l++) values[l] = *(const u32 *)&shared.rows[begin[l] + pairs[i].offset] & pairs[i].keep | ones[i];
#pragma unroll
                for (int l = 0; l < 4; l += 2) {
                    left[l] = values[l] & 0xffffu | values[l + 1] << 16;
                    left[l + 1] = values[l] >> 16 | values[l + 1] & 0xffff0000u;
                }
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) tensor_multiply(sum[i][j], left, &right[j / 2][j % 2 * 2], T());
            }
        }
        __syncthreads();
    }

    // Slices add their sums in order.
    cp_async_wait<0>();
    for (int turn = 0; turn < SLICES; turn++) {
        __syncthreads();
        if (slice == turn)
#pragma unroll
            for (int i = 0; i < TAKEN; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                    for (int l = 0; l < 4; l++) {
                        float &to = shared.sum[(group * TAKEN + i) * 16 + line * 2 + l / 2][j * 8 + quarter * 2 + l % 2];
                        to = turn == 0 ? sum[i][j][l] : to + sum[i][j][l];
                    }
    }
    __syncthreads();
    constexpr int TAPS = R * Windows::WINDOW;
    for (int at = threadIdx.x; at < WANTED * TAPS; at += THREADS) {
        const int tap = at % TAPS, k = at / TAPS;
        parts[(i64)blockIdx.x * WANTED * TAPS + at] = shared.sum[tap / Windows::WINDOW * Windows::RUN + tap % Windows::WINDOW][k];
    }
    if (bias_parts)
        for (int k = threadIdx.x; k < WANTED; k += THREADS) bias_parts[(i64)blockIdx.x * WANTED + k] = shared.sum[ONES][k];
}
