// The gradients by filters and bias where the input has few channels.
//
// A block goes through tiles of TILE_H × TILE_W outputs with the input and the output's gradient in shared memory, as they
// lie in memory. A thread has TAKEN lines, each an input channel and a filter row, and THREAD_K output channels; moving along
// a row of pixels it keeps the S values under the filter in registers, so that each new one costs one read. Several threads
// (slices) share these sums, each with its own rows. Sums of a bias come from a line whose input is a row of ones.
//
// ELEMENT: type of the images. CHANNELS, WANTED: of input and output. R, S: taps. UNIT, GRADIENT_UNIT: neighbours in memory,
// of input and gradient, that are always inside or outside together, and whole in 16 bytes; the input's from LEAD before the
// first window on.
#include "pipeline.cuh"
#include "staging.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef CHANNELS
#define CHANNELS 3
#define WANTED 6
#define THREAD_K 6
#define TAKEN 1
#define R 5
#define S 5
#define STRIDE_H 1
#define STRIDE_W 1
#define TILE_H 28
#define TILE_W 28
#define SLICES 14
#define UNIT 4
#define LEAD 0
#define GRADIENT_UNIT 4
#endif

typedef ELEMENT T;

constexpr int GROUPS_K = (WANTED + THREAD_K - 1) / THREAD_K, WIDTH = GROUPS_K * THREAD_K;
constexpr int LINES = CHANNELS * R;
// One more line than there are rows of filters: that of the bias.
constexpr int LINE_GROUPS = (LINES + TAKEN) / TAKEN, UNITS = LINE_GROUPS * GROUPS_K, THREADS = (UNITS * SLICES + 31) / 32 * 32;
constexpr int ROWS = (TILE_H - 1) * STRIDE_H + R, LINE = LEAD + ((TILE_W - 1) * STRIDE_W + S) * CHANNELS;
// Rows that neighbours read begin in different banks.
constexpr int ALIGN = 16 / sizeof(T), PITCH = (LINE + ALIGN - 1) / (2 * ALIGN) * (2 * ALIGN) + ALIGN;
// Pixels whose gradients a thread reads at once: all of their channels, or one's.
constexpr int TOGETHER = GROUPS_K > 1 || TILE_W % 2 == 1 ? 1 : TILE_W % 4 == 0 ? 4 : 2;
constexpr int READ = TOGETHER * THREAD_K, VECTOR = READ % 4 == 0 ? 4 : READ % 2 == 0 ? 2 : 1;

// Sums of a thread.
constexpr int OWN = TAKEN * S * THREAD_K;
// Blocks of a multiprocessor hide each other's way from memory.
#ifndef RESIDENT
#define RESIDENT ((OWN <= 32 ? 896 : 512) / THREADS)
#endif

struct Shared {
    __align__(16) T gradient[TILE_H * TILE_W * WIDTH];
    __align__(16) T input[ROWS][PITCH];
    T ones[PITCH];
};
struct Sums {
    float at[SLICES > 1 ? SLICES - 1 : 1][OWN][UNITS];
};

struct Frame {
    int h, w, p, q, padding_h, padding_w;
    int tiles_h, tiles_w, tiles;
};

// Starts the way of the input and the output's gradient of a tile into shared memory.
__device__ __forceinline__ void bring_tile(Shared &shared, const T *images, const T *dy, int tile, const Frame &f) {
    const int tile_w = tile % f.tiles_w * TILE_W, tile_h = tile / f.tiles_w % f.tiles_h * TILE_H;
    const i64 image = tile / f.tiles_w / f.tiles_h;
    const T *const from = images + image * f.h * f.w * CHANNELS, *const gradients = dy + image * f.p * f.q * WANTED;
    const int top = tile_h * STRIDE_H - f.padding_h, left = (tile_w * STRIDE_W - f.padding_w) * CHANNELS - LEAD;
    constexpr int LINE_UNITS = (LINE + UNIT - 1) / UNIT;
    for (int at = threadIdx.x; at < ROWS * LINE_UNITS; at += THREADS) {
        const int y = at / LINE_UNITS, x = at % LINE_UNITS * UNIT;
        const bool there = (u32)(top + y) < (u32)f.h && (u32)(left + x) < (u32)(f.w * CHANNELS);
        bring<UNIT>(&shared.input[y][x], there ? from + (i64)(top + y) * f.w * CHANNELS + left + x : images, there);
    }
    // A row of gradients, or a pixel's where threads have channels beyond the last.
    constexpr int LENGTH = WIDTH == WANTED ? TILE_W * WANTED : WANTED, GRADIENT_UNITS = LENGTH / GRADIENT_UNIT;
    constexpr int PIECES = WIDTH == WANTED ? TILE_H : TILE_H * TILE_W, PIECE_STEP = WIDTH == WANTED ? LENGTH : WIDTH;
    for (int at = threadIdx.x; at < PIECES * GRADIENT_UNITS; at += THREADS) {
        const int piece = at / GRADIENT_UNITS, x = at % GRADIENT_UNITS * GRADIENT_UNIT;
        const int y = WIDTH == WANTED ? piece : piece / TILE_W, column = (tile_w + (WIDTH == WANTED ? 0 : piece % TILE_W)) * WANTED + x;
        const bool there = tile_h + y < f.p && column < f.q * WANTED;
        bring<GRADIENT_UNIT>(&shared.gradient[piece * PIECE_STEP + x], there ? gradients + (i64)(tile_h + y) * f.q * WANTED + column : dy, there);
    }
    cp_async_commit();
}

// Blocks: x, each with every gridDim.x-th tile. `parts`: [block][k][tap][channel]; `bias_parts`: [block][k] or null.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT > 1 ? RESIDENT : 1)
conv2d_direct_weight_grad(const T *__restrict__ images, const T *__restrict__ dy, float *__restrict__ parts, float *__restrict__ bias_parts, const Frame f) {
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int unit = threadIdx.x % UNITS, slice = threadIdx.x / UNITS;
    const int line = unit % LINE_GROUPS * TAKEN, k = unit / LINE_GROUPS * THREAD_K;
    const bool works = slice < SLICES;
    // The line of the bias, and those beyond it that fill a thread, read ones.
    int from[TAKEN], step[TAKEN];
    float sum[OWN];
#pragma unroll
    for (int t = 0; t < TAKEN; t++) {
        const bool ones = line + t >= LINES;
        from[t] = ones ? (int)(shared.ones - &shared.input[0][0]) : (line + t) % R * PITCH + LEAD + (line + t) / R;
        step[t] = ones ? 0 : STRIDE_H * PITCH;
    }
#pragma unroll
    for (int at = 0; at < OWN; at++) sum[at] = 0.0f;
    for (int at = threadIdx.x; at < PITCH; at += THREADS) shared.ones[at] = narrow<T>(1.0f);
    if (WIDTH != WANTED)
        for (int at = threadIdx.x; at < TILE_H * TILE_W * WIDTH; at += THREADS) shared.gradient[at] = T{};

    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x) {
        __syncthreads();
        bring_tile(shared, images, dy, tile, f);
        cp_async_wait<0>();
        __syncthreads();
        if (!works) continue;
#pragma unroll 1
        for (int y = slice; y < TILE_H; y += SLICES) {
            const T *const gradient = &shared.gradient[y * TILE_W * WIDTH + k];
            const T *input[TAKEN];
            float under[TAKEN][S];
#pragma unroll
            for (int t = 0; t < TAKEN; t++) {
                input[t] = &shared.input[0][0] + from[t] + y * step[t];
#pragma unroll
                for (int s = 0; s + STRIDE_W < S; s++) under[t][s + STRIDE_W] = widen(input[t][s * CHANNELS]);
            }
#pragma unroll(TOGETHER >= 4 ? 1 : 4 / TOGETHER)
            for (int x = 0; x < TILE_W; x += TOGETHER) {
                float by[READ];
#pragma unroll
                for (int j = 0; j < READ; j += VECTOR) {
                    const Piece<T, VECTOR> several = *(const Piece<T, VECTOR> *)&gradient[x * WIDTH + j];
#pragma unroll
                    for (int l = 0; l < VECTOR; l++) by[j + l] = widen(several.at[l]);
                }
#pragma unroll
                for (int i = 0; i < TOGETHER; i++)
#pragma unroll
                    for (int t = 0; t < TAKEN; t++) {
#pragma unroll
                        for (int s = 0; s < S; s++) under[t][s] = s + STRIDE_W < S ? under[t][s + STRIDE_W] : widen(input[t][((x + i) * STRIDE_W + s) * CHANNELS]);
#pragma unroll
                        for (int s = 0; s < S; s++)
#pragma unroll
                            for (int j = 0; j < THREAD_K; j++) sum[(t * S + s) * THREAD_K + j] += under[t][s] * by[i * THREAD_K + j];
                    }
            }
        }
    }

    // Slices are added in their order.
    __syncthreads();
    Sums &sums = *(Sums *)room;
    if (works && slice > 0) {
#pragma unroll
        for (int at = 0; at < OWN; at++) sums.at[slice - 1][at][unit] = sum[at];
    }
    __syncthreads();
    if (slice > 0) return;
    for (int other = 1; other < SLICES; other++)
#pragma unroll
        for (int at = 0; at < OWN; at++) sum[at] += sums.at[other - 1][at][unit];
#pragma unroll
    for (int t = 0; t < TAKEN; t++)
#pragma unroll
        for (int j = 0; j < THREAD_K; j++) {
            if (k + j >= WANTED) break;
            const int c = (line + t) / R, r = (line + t) % R;
            if (line + t == LINES && bias_parts) bias_parts[(i64)blockIdx.x * WANTED + k + j] = sum[t * S * THREAD_K + j];
            if (line + t >= LINES) continue;
#pragma unroll
            for (int s = 0; s < S; s++) parts[(((i64)blockIdx.x * WANTED + k + j) * (R * S) + r * S + s) * CHANNELS + c] = sum[(t * S + s) * THREAD_K + j];
        }
}
