// The gradients by filters and bias where the input has few channels.
//
// A block goes through tiles of TILE_H × TILE_W outputs with the input and the output's gradient in shared memory. A thread
// has one input channel, one filter row and THREAD_K output channels; moving along a row of pixels it keeps the S values
// under the filter in registers, so that each new one costs one read. Several threads (slices) share these sums, each with
// its own rows. Sums of a bias come from threads whose input is a row of ones.
//
// ELEMENT: type of the images. CHANNELS, WANTED: of input and output. R, S: taps.
#include "staging.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef CHANNELS
#define CHANNELS 3
#define WANTED 6
#define THREAD_K 6
#define R 5
#define S 5
#define STRIDE_H 1
#define STRIDE_W 1
#define TILE_H 28
#define TILE_W 28
#define SLICES 8
#endif

typedef ELEMENT T;

constexpr int GROUPS_K = (WANTED + THREAD_K - 1) / THREAD_K, WIDTH = GROUPS_K * THREAD_K;
constexpr int LINES = CHANNELS * R;
// One more line than there are rows of filters: that of the bias.
constexpr int UNITS = (LINES + 1) * GROUPS_K, THREADS = (UNITS * SLICES + 31) / 32 * 32;
constexpr int ROWS = (TILE_H - 1) * STRIDE_H + R, COLUMNS = (TILE_W - 1) * STRIDE_W + S;
// An odd distance puts the rows that neighbours read into different banks.
constexpr int PITCH = COLUMNS | 1;
constexpr int VECTOR = THREAD_K % 4 == 0 ? 4 : THREAD_K % 2 == 0 ? 2 : 1;
struct __align__(4 * VECTOR) Several { float at[VECTOR]; };

struct Shared {
    __align__(16) float gradient[TILE_H][TILE_W][WIDTH];
    float input[CHANNELS][ROWS][PITCH];
    float ones[PITCH];
};
struct Sums {
    float at[SLICES > 1 ? SLICES - 1 : 1][S * THREAD_K][UNITS];
};

struct Frame {
    int h, w, p, q, padding_h, padding_w;
    int tiles_h, tiles_w, tiles;
};

// Blocks: x, each with every gridDim.x-th tile. `parts`: [block][k][tap][channel]; `bias_parts`: [block][k] or null.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
conv2d_direct_weight_grad(const T *__restrict__ images, const T *__restrict__ dy, float *__restrict__ parts, float *__restrict__ bias_parts, const Frame f) {
    take_turn();
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int unit = threadIdx.x % UNITS, slice = threadIdx.x / UNITS;
    const int line = unit % (LINES + 1), k = unit / (LINES + 1) * THREAD_K;
    const int c = line / R, r = line % R;
    const bool of_bias = line == LINES, works = slice < SLICES;
    float sum[S][THREAD_K];
#pragma unroll
    for (int s = 0; s < S; s++)
#pragma unroll
        for (int j = 0; j < THREAD_K; j++) sum[s][j] = 0.0f;
    for (int at = threadIdx.x; at < PITCH; at += THREADS) shared.ones[at] = 1.0f;

    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x) {
        const int tile_w = tile % f.tiles_w * TILE_W, tile_h = tile / f.tiles_w % f.tiles_h * TILE_H;
        const i64 image = tile / f.tiles_w / f.tiles_h;
        const T *const from = images + image * f.h * f.w * CHANNELS, *const gradients = dy + image * f.p * f.q * WANTED;
        const int top = tile_h * STRIDE_H - f.padding_h, left = tile_w * STRIDE_W - f.padding_w;
        __syncthreads();
        stage<float, ROWS * COLUMNS * CHANNELS, THREADS, 16>(
            [&](int at) {
                const int channel = at % CHANNELS, x = at / CHANNELS % COLUMNS, y = at / CHANNELS / COLUMNS;
                const bool inside = (u32)(top + y) < (u32)f.h && (u32)(left + x) < (u32)f.w;
                return inside ? widen(from[((i64)(top + y) * f.w + left + x) * CHANNELS + channel]) : 0.0f;
            },
            [&](int at, float value) { shared.input[at % CHANNELS][at / CHANNELS / COLUMNS][at / CHANNELS % COLUMNS] = value; });
        // Runs of V channels of the output's gradient.
        constexpr int V = WANTED % 4 == 0 && WIDTH == WANTED ? 4 : WANTED % 2 == 0 && WIDTH == WANTED ? 2 : 1;
        struct __align__(V * sizeof(T)) Run { T at[V]; };
        stage<Run, TILE_H * TILE_W * WIDTH / V, THREADS, 16>(
            [&](int at) {
                const int wanted = at % (WIDTH / V) * V, x = at / (WIDTH / V) % TILE_W, y = at / (WIDTH / V) / TILE_W;
                const bool inside = wanted < WANTED && tile_h + y < f.p && tile_w + x < f.q;
                return inside ? *(const Run *)&gradients[((i64)(tile_h + y) * f.q + tile_w + x) * WANTED + wanted] : Run{};
            },
            [&](int at, const Run &run) {
#pragma unroll
                for (int j = 0; j < V; j++) (&shared.gradient[0][0][0])[at * V + j] = widen(run.at[j]);
            });
        __syncthreads();
        if (!works) continue;
        for (int y = slice; y < TILE_H; y += SLICES) {
            const float *const input = of_bias ? shared.ones : shared.input[c][y * STRIDE_H + r];
            float under[S];
#pragma unroll
            for (int s = 0; s + STRIDE_W < S; s++) under[s + STRIDE_W] = input[s];
#pragma unroll 4
            for (int x = 0; x < TILE_W; x++) {
#pragma unroll
                for (int s = 0; s < S; s++) under[s] = s + STRIDE_W < S ? under[s + STRIDE_W] : input[x * STRIDE_W + s];
                float by[THREAD_K];
#pragma unroll
                for (int j = 0; j < THREAD_K; j += VECTOR) {
                    const Several several = *(const Several *)&shared.gradient[y][x][k + j];
#pragma unroll
                    for (int l = 0; l < VECTOR; l++) by[j + l] = several.at[l];
                }
#pragma unroll
                for (int s = 0; s < S; s++)
#pragma unroll
                    for (int j = 0; j < THREAD_K; j++) sum[s][j] += under[s] * by[j];
            }
        }
    }

    // Slices are added in their order.
    __syncthreads();
    Sums &sums = *(Sums *)room;
    if (works && slice > 0) {
#pragma unroll
        for (int s = 0; s < S; s++)
#pragma unroll
            for (int j = 0; j < THREAD_K; j++) sums.at[slice - 1][s * THREAD_K + j][unit] = sum[s][j];
    }
    __syncthreads();
    if (slice > 0) return;
    for (int other = 1; other < SLICES; other++)
#pragma unroll
        for (int s = 0; s < S; s++)
#pragma unroll
            for (int j = 0; j < THREAD_K; j++) sum[s][j] += sums.at[other - 1][s * THREAD_K + j][unit];
#pragma unroll
    for (int j = 0; j < THREAD_K; j++) {
        if (k + j >= WANTED) break;
        if (of_bias) {
            if (bias_parts) bias_parts[(i64)blockIdx.x * WANTED + k + j] = sum[0][j];
            continue;
        }
#pragma unroll
        for (int s = 0; s < S; s++) parts[(((i64)blockIdx.x * WANTED + k + j) * (R * S) + r * S + s) * CHANNELS + c] = sum[s][j];
    }
}
