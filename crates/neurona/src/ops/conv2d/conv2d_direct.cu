// Convolution forward, and its gradient by the input, where one side has few channels: a product of matrices would spend
// most of its tile on channels that are not there.
//
// A block has the filters in shared memory, and goes through tiles of TILE_H × TILE_W outputs of IMAGES images with the
// input under them, as it lies in memory. A thread computes PIXELS neighbours in a row for THREAD_K channels, so that a
// value read once meets S taps of the filter, and a weight read once meets PIXELS pixels; where there are too few of
// those for all threads of the GPU, SPLIT of them share each sum.
//
// The gradient by the input with a stride gives STRIDE_H × STRIDE_W times as many pixels as there are windows: these are
// then computed as channels of one window, and put in their places at the end (SHUFFLE_H, SHUFFLE_W).
//
// ELEMENT, WEIGHT_ELEMENT, SCALE_ELEMENT, BIAS_ELEMENT: types of images, filters [k, c, r, s], their scales and bias.
// CHANNELS, WANTED: of input and output (of all places of a window). CHUNK: channels that are in shared memory at a time.
// R, S: taps of a window. BLOCK_K: channels of a block. INPUT_GRAD: the gradient by the input, of filters of FILTER_R ×
// FILTER_S. FIRST_H, FIRST_W: where a window's first row and column lie from its pixel.
// UNIT: neighbours in memory that are always inside or outside together, and whole in 16 bytes, from LEAD before the first
// window on. WIDTH: the input's, where a thread has whole rows and knows which of its taps lie outside; else 0.
// HEIGHT: the input's, where tiles are whole images; else 0.
// THROUGH: neighbours that results leave in, by way of shared memory, where tiles are whole rows of all channels; else 0.
#include "pipeline.cuh"
#include "staging.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef WEIGHT_ELEMENT
#define WEIGHT_ELEMENT ELEMENT
#endif
#ifndef SCALE_ELEMENT
#define SCALE_ELEMENT WEIGHT_ELEMENT
#endif
#ifndef BIAS_ELEMENT
#define BIAS_ELEMENT ELEMENT
#endif
#ifndef CHANNELS
#define CHANNELS 3
#define CHUNK 3
#define WANTED 6
#define BLOCK_K 6
#define THREAD_K 6
#define PIXELS 7
#define SPLIT 1
#define R 5
#define S 5
#define STRIDE_H 1
#define STRIDE_W 1
#define IMAGES 2
#define TILE_H 28
#define TILE_W 28
#define UNIT 4
#define LEAD 0
#define WIDTH 0
#define HEIGHT 32
#define THROUGH 4
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#define SHUFFLE_H 1
#define SHUFFLE_W 1
#define FILTER_R R
#define FILTER_S S
#define PADDING_H 0
#define PADDING_W 0
#define FIRST_H 0
#define FIRST_W 0
#endif

typedef ELEMENT T;

constexpr int GROUPS_W = TILE_W / PIXELS, GROUPS_K = BLOCK_K / THREAD_K;
constexpr int WORKERS = TILE_H * IMAGES * GROUPS_W * GROUPS_K * SPLIT, THREADS = (WORKERS + 31) / 32 * 32;
constexpr int ROWS = HEIGHT > 0 ? HEIGHT : (TILE_H - 1) * STRIDE_H + R;
// Columns under the outputs of a thread and of the tile, and where the first in shared memory lies.
constexpr int UNDER = (PIXELS - 1) * STRIDE_W + S;
constexpr int COLUMNS = WIDTH > 0 ? WIDTH : (TILE_W - 1) * STRIDE_W + S, BEGIN = WIDTH > 0 ? -(FIRST_W) : 0;
constexpr int LINE = LEAD + COLUMNS * CHUNK;
// Eight rows that neighbours read, and two images, begin in different banks.
constexpr int ALIGN = 16 / sizeof(T), PITCH = (LINE + ALIGN - 1) / (2 * ALIGN) * (2 * ALIGN) + ALIGN;
constexpr int IMAGE = ROWS * PITCH + (ROWS * PITCH % (8 * ALIGN) == 0 ? 4 * ALIGN : 0);
// The weights that a thread reads for one row of a window are neighbours.
constexpr int RUN_K = (S * THREAD_K + 3) / 4 * 4;
// Channels of the output as it is stored.
#define OUT (WANTED / (SHUFFLE_H * SHUFFLE_W))
// Blocks of a multiprocessor hide each other's way from memory; threads with more sums need more registers than 96.
#ifndef RESIDENT
#define RESIDENT ((SPLIT > 1 ? 384 : PIXELS * THREAD_K > 48 ? 512 : 640) / THREADS)
#endif

struct Shared {
    float weight[CHUNK * R][GROUPS_K][RUN_K];
    union {
        __align__(16) T input[IMAGES][IMAGE];
#if THROUGH
        __align__(16) T output[IMAGES * TILE_H * TILE_W * WANTED];
#endif
    };
};

struct Frame {
    // The input; the outputs, counted in windows; what lies before the first window; and the output as it is stored.
    int n, h, w;
    int p, q;
    int before_h, before_w;
    int out_h, out_w;
    int tiles_h, tiles_w, tiles;
    int relu;
};

// Puts the weights of CHUNK channels from `chunk` for BLOCK_K outputs from `first` into shared memory.
__device__ __forceinline__ void stage_weights(Shared &shared, const WEIGHT_ELEMENT *weight, const SCALE_ELEMENT *scale, int chunk, int first) {
    auto put = [&](int wanted, int c, int row, int column, float value) {
        shared.weight[c * R + row][wanted / THREAD_K][column * THREAD_K + wanted % THREAD_K] = value;
    };
#if INPUT_GRAD
    auto load = [&](int at) {
        const int wanted = first + at % BLOCK_K, column = at / BLOCK_K % S, row = at / BLOCK_K / S % R, k = chunk + at / BLOCK_K / S / R;
        const int place = wanted / OUT, c = wanted % OUT;
        const int r = place / SHUFFLE_W + PADDING_H - (FIRST_H + row) * SHUFFLE_H;
        const int s = place % SHUFFLE_W + PADDING_W - (FIRST_W + column) * SHUFFLE_W;
        const bool there = wanted < WANTED && k < CHANNELS && (u32)r < FILTER_R && (u32)s < FILTER_S;
        return there ? widen(weight[(((i64)k * OUT + c) * FILTER_R + r) * FILTER_S + s]) : 0.0f;
    };
    auto store = [&](int at, float value) { put(at % BLOCK_K, at / BLOCK_K / S / R, at / BLOCK_K / S % R, at / BLOCK_K % S, value); };
#else
    auto load = [&](int at) {
        const int tap = at % (R * S), c = chunk + at / (R * S) % CHUNK, k = first + at / (R * S) / CHUNK;
        if (k >= WANTED || c >= CHANNELS) return 0.0f;
        const float value = widen(weight[((i64)k * CHANNELS + c) * (R * S) + tap]);
        return scale ? value * widen(scale[k]) : value;
    };
    auto store = [&](int at, float value) { put(at / (R * S) / CHUNK, at / (R * S) % CHUNK, at / S % R, at % S, value); };
#endif
    stage<float, CHUNK * R * S * BLOCK_K, THREADS, 8>(load, store);
}

// Starts the way of the input under a tile, from row `top` and column `left` on, into shared memory. Rows outside are never
// read.
__device__ __forceinline__ void bring_input(Shared &shared, const T *images, int image, int top, int left, int chunk, const Frame &f) {
    constexpr bool WHOLE = CHUNK == CHANNELS;
    constexpr int PIXEL = WHOLE ? 1 : CHUNK / UNIT, UNITS = WHOLE ? (LINE + UNIT - 1) / UNIT : COLUMNS * PIXEL;
    for (int at = threadIdx.x; at < IMAGES * ROWS * UNITS; at += THREADS) {
        const int unit = at % UNITS, y = at / UNITS % ROWS, i = at / UNITS / ROWS;
        const int x = left * CHANNELS + (WHOLE ? unit * UNIT - LEAD : unit / PIXEL * CHANNELS), c = WHOLE ? 0 : chunk + unit % PIXEL * UNIT;
        const bool there = image + i < f.n && (u32)(top + y) < (u32)f.h && (u32)x < (u32)(f.w * CHANNELS) && c < CHANNELS;
        const T *const from = there ? images + ((i64)(image + i) * f.h + top + y) * f.w * CHANNELS + x + c : images;
        bring<UNIT>(&shared.input[i][y * PITCH + unit * UNIT], from, there);
    }
    cp_async_commit();
}

// Blocks: x, each with every gridDim.x-th tile; y over parts of BLOCK_K channels.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT > 1 ? RESIDENT : 1)
conv2d_direct(const T *__restrict__ images, const WEIGHT_ELEMENT *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const Frame f) {
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int first_k = blockIdx.y * BLOCK_K;
    // Neighbours share reads of the input; then come images, whose rows meet the same taps.
    const bool works = threadIdx.x < WORKERS;
    const int worker = works ? threadIdx.x : 0, split = worker % SPLIT, group_k = worker / SPLIT % GROUPS_K;
    const int column = worker / (SPLIT * GROUPS_K) % GROUPS_W * PIXELS;
    const int own = worker / (SPLIT * GROUPS_K * GROUPS_W) % IMAGES, row = worker / (SPLIT * GROUPS_K * GROUPS_W * IMAGES);
    if (CHUNK >= CHANNELS) stage_weights(shared, weight, scale, 0, first_k);

    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x) {
        const int tile_w = tile % f.tiles_w * TILE_W, tile_h = tile / f.tiles_w % f.tiles_h * TILE_H;
        const int image = tile / f.tiles_w / f.tiles_h * IMAGES;
        const int top = tile_h * STRIDE_H - f.before_h, begin = HEIGHT > 0 ? 0 : top, left = WIDTH > 0 ? 0 : tile_w * STRIDE_W - f.before_w;
        float sum[PIXELS][THREAD_K];
#pragma unroll
        for (int i = 0; i < PIXELS; i++)
#pragma unroll
            for (int j = 0; j < THREAD_K; j++) sum[i][j] = 0.0f;

#pragma unroll 1
        for (int chunk = 0; chunk < CHANNELS; chunk += CHUNK) {
            __syncthreads();
            bring_input(shared, images, image, begin, left, chunk, f);
            if (CHUNK < CHANNELS) stage_weights(shared, weight, scale, chunk, first_k);
            cp_async_wait<0>();
            __syncthreads();
            const int y = top + row * STRIDE_H;
            const T *const input = &shared.input[own][LEAD + column * STRIDE_W * CHUNK];
#pragma unroll 1
            for (int line = split; works && line < CHUNK * R; line += SPLIT) {
                const int c = line / R, r = line % R;
                if ((u32)(y + r) >= (u32)f.h) continue;
                float under[UNDER], by[RUN_K];
                auto there = [](int x) { return WIDTH == 0 || (x >= BEGIN && x < BEGIN + WIDTH); };
#pragma unroll
                for (int x = 0; x < UNDER; x++)
                    if (there(x)) under[x] = widen(input[(y + r - begin) * PITCH + (x - BEGIN) * CHUNK + c]);
#pragma unroll
                for (int j = 0; j < RUN_K; j += 4) {
                    const float4 four = *(const float4 *)&shared.weight[line][group_k][j];
                    by[j] = four.x, by[j + 1] = four.y, by[j + 2] = four.z, by[j + 3] = four.w;
                }
#pragma unroll
                for (int s = 0; s < S; s++)
#pragma unroll
                    for (int i = 0; i < PIXELS; i++)
#pragma unroll
                        for (int j = 0; j < THREAD_K; j++)
                            if (there(i * STRIDE_W + s)) sum[i][j] += under[i * STRIDE_W + s] * by[s * THREAD_K + j];
            }
        }
        if (SPLIT > 1)
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
#pragma unroll
                for (int j = 0; j < THREAD_K; j++)
#pragma unroll
                    for (int lane = SPLIT / 2; lane > 0; lane /= 2) sum[i][j] += __shfl_xor_sync(FULL_WARP, sum[i][j], lane);
        auto result = [&](int i, int j, int channel) {
            float value = sum[i][j];
            if (bias) value += widen(bias[channel]);
            return narrow<T>(f.relu && value < 0.0f ? 0.0f : value);
        };

#if THROUGH
        // A thread's own results lie far from its neighbours': memory gets them in whole lines.
        __syncthreads();
        constexpr int VECTOR = THREAD_K % 4 == 0 ? 4 : THREAD_K % 2 == 0 ? 2 : 1;
        if (works && split == 0) {
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
#pragma unroll
                for (int j = 0; j < THREAD_K; j += VECTOR) {
                    Piece<T, VECTOR> piece;
#pragma unroll
                    for (int l = 0; l < VECTOR; l++) piece.at[l] = result(i, j + l, group_k * THREAD_K + j + l);
                    *(Piece<T, VECTOR> *)&shared.output[(((own * TILE_H + row) * TILE_W) + column + i) * WANTED + group_k * THREAD_K + j] = piece;
                }
        }
        __syncthreads();
        const int whole = IMAGES > 1 ? (f.n - image < IMAGES ? f.n - image : IMAGES) * TILE_H : f.p - tile_h < TILE_H ? f.p - tile_h : TILE_H;
        T *const to = out + ((i64)image * f.p + tile_h) * (TILE_W * WANTED);
        for (int at = threadIdx.x * THROUGH; at < whole * (TILE_W * WANTED); at += THREADS * THROUGH)
            *(Piece<T, THROUGH> *)&to[at] = *(const Piece<T, THROUGH> *)&shared.output[at];
#else
        if (!works || split > 0 || image + own >= f.n || tile_h + row >= f.p) continue;
#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            if (tile_w + column + i >= f.q) break;
#pragma unroll
            for (int j = 0; j < THREAD_K; j++) {
                const int at = first_k + group_k * THREAD_K + j, place = at / OUT, channel = at % OUT;
                const int y = (tile_h + row) * SHUFFLE_H + place / SHUFFLE_W, x = (tile_w + column + i) * SHUFFLE_W + place % SHUFFLE_W;
                if (at >= WANTED || y >= f.out_h || x >= f.out_w) continue;
                out[(((i64)(image + own) * f.out_h + y) * f.out_w + x) * OUT + channel] = result(i, j, channel);
            }
        }
#endif
    }
}
