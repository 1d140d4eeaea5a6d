// Convolution forward, and its gradient by the input, where one side has few channels: a product of matrices would spend
// most of its tile on channels that are not there.
//
// A block has the input under TILE_H × TILE_W outputs in shared memory, one plane for each channel, CHUNK channels at a
// time; a thread computes 4 neighbours in a row for THREAD_K channels, so that a value read once meets S taps of the
// filter, and a weight read once meets 4 pixels.
//
// The gradient by the input with a stride gives STRIDE_H × STRIDE_W times as many pixels as there are windows: these are
// then computed as channels of one window, and put in their places at the end (SHUFFLE_H, SHUFFLE_W).
//
// ELEMENT, WEIGHT_ELEMENT, SCALE_ELEMENT, BIAS_ELEMENT: types of images, filters [k, c, r, s], their scales and bias.
// CHANNELS, WANTED: of input and output (of all places of a window). R, S: taps of a window. BLOCK_K: channels of a block.
// INPUT_GRAD: the gradient by the input, of filters of FILTER_R × FILTER_S; the window's first row and column lie FIRST_H
// and FIRST_W from its pixel.
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
#define R 5
#define S 5
#define STRIDE_H 1
#define STRIDE_W 1
#define TILE_H 28
#define TILE_W 28
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

constexpr int PIXELS = 4;
constexpr int GROUPS_W = TILE_W / PIXELS, PIXEL_GROUPS = GROUPS_W * TILE_H;
constexpr int THREADS = PIXEL_GROUPS * (BLOCK_K / THREAD_K);
constexpr int ROWS = (TILE_H - 1) * STRIDE_H + R;
// Values of one row under 4 outputs, rounded up to whole 16-byte reads.
constexpr int UNDER = ((PIXELS - 1) * STRIDE_W + S + 3) / 4 * 4;
constexpr int PITCH = ((TILE_W - PIXELS) * STRIDE_W + UNDER + 3) / 4 * 4;
// As wide as a run of THREAD_K weights can be read.
constexpr int VECTOR = THREAD_K % 4 == 0 ? 4 : THREAD_K % 2 == 0 ? 2 : 1;
// A little more than needed, so that the taps of a channel, which are neighbours in memory, lie in different banks.
constexpr int PITCH_K = BLOCK_K + VECTOR;
struct __align__(4 * VECTOR) Weights { float at[VECTOR]; };

struct Shared {
    float input[CHUNK][ROWS][PITCH];
    float weight[CHUNK][R][S][PITCH_K];
};

struct Frame {
    // The input; the outputs, counted in windows; what lies before the first window; and the output as it is stored.
    int h, w;
    int p, q;
    int before_h, before_w;
    int out_h, out_w;
    int tiles_h, tiles_w;
    int relu;
};

constexpr int PLACES = SHUFFLE_H * SHUFFLE_W, OUT = WANTED / PLACES;

// Puts the weights of CHUNK channels from `chunk` for BLOCK_K outputs from `first` into shared memory.
__device__ __forceinline__ void stage_weights(Shared &shared, const WEIGHT_ELEMENT *weight, const SCALE_ELEMENT *scale, int chunk, int first) {
#if INPUT_GRAD
    auto load = [&](int at) {
        const int wanted = first + at % BLOCK_K, column = at / BLOCK_K % S, row = at / BLOCK_K / S % R, k = chunk + at / BLOCK_K / S / R;
        const int place = wanted / OUT, c = wanted % OUT;
        const int r = place / SHUFFLE_W + PADDING_H - (FIRST_H + row) * SHUFFLE_H;
        const int s = place % SHUFFLE_W + PADDING_W - (FIRST_W + column) * SHUFFLE_W;
        const bool there = wanted < WANTED && k < CHANNELS && (u32)r < FILTER_R && (u32)s < FILTER_S;
        return there ? widen(weight[(((i64)k * OUT + c) * FILTER_R + r) * FILTER_S + s]) : 0.0f;
    };
    auto store = [&](int at, float value) { shared.weight[at / BLOCK_K / S / R][at / BLOCK_K / S % R][at / BLOCK_K % S][at % BLOCK_K] = value; };
#else
    auto load = [&](int at) {
        const int tap = at % (R * S), c = chunk + at / (R * S) % CHUNK, k = first + at / (R * S) / CHUNK;
        if (k >= WANTED || c >= CHANNELS) return 0.0f;
        const float value = widen(weight[((i64)k * CHANNELS + c) * (R * S) + tap]);
        return scale ? value * widen(scale[k]) : value;
    };
    auto store = [&](int at, float value) { (&shared.weight[at / (R * S) % CHUNK][0][0][0])[at % (R * S) * PITCH_K + at / (R * S) / CHUNK] = value; };
#endif
    stage<float, CHUNK * R * S * BLOCK_K, THREADS, 16>(load, store);
}

// Puts the input under a tile, from row `top` and column `left` of an image, into shared memory.
__device__ __forceinline__ void stage_input(Shared &shared, const T *image, int height, int width, int top, int left, int chunk) {
    auto inside = [&](int y, int x) { return (u32)(top + y) < (u32)height && (u32)(left + x) < (u32)width; };
    auto address = [&](int y, int x, int c) { return image + ((i64)(top + y) * width + left + x) * CHANNELS + chunk + c; };
    if (CHANNELS % 4 == 0 && CHUNK % 4 == 0) {
        struct __align__(4 * sizeof(T)) Four { T at[4]; };
        constexpr int FOURS = CHUNK / 4 > 0 ? CHUNK / 4 : 1;
        auto load = [&](int at) {
            const int c = at % FOURS * 4, x = at / FOURS % PITCH, y = at / FOURS / PITCH;
            const bool there = inside(y, x) && (CHANNELS % CHUNK == 0 || chunk + c < CHANNELS);
            return there ? *(const Four *)address(y, x, c) : Four{};
        };
        auto store = [&](int at, const Four &four) {
#pragma unroll
            for (int j = 0; j < 4; j++) shared.input[at % FOURS * 4 + j][at / FOURS / PITCH][at / FOURS % PITCH] = widen(four.at[j]);
        };
        stage<Four, ROWS * PITCH * FOURS, THREADS, 8>(load, store);
    } else {
        auto load = [&](int at) {
            const int c = at % CHUNK, x = at / CHUNK % PITCH, y = at / CHUNK / PITCH;
            const bool there = inside(y, x) && (CHANNELS % CHUNK == 0 || chunk + c < CHANNELS);
            return there ? widen(*address(y, x, c)) : 0.0f;
        };
        auto store = [&](int at, float value) { shared.input[at % CHUNK][at / CHUNK / PITCH][at / CHUNK % PITCH] = value; };
        stage<float, ROWS * PITCH * CHUNK, THREADS, 16>(load, store);
    }
}

// Blocks: x over tiles of images, y over parts of BLOCK_K channels.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
conv2d_direct(const T *__restrict__ images, const WEIGHT_ELEMENT *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const Frame f) {
    take_turn();
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int tile_w = blockIdx.x % f.tiles_w * TILE_W, tile_h = blockIdx.x / f.tiles_w % f.tiles_h * TILE_H;
    const i64 image = blockIdx.x / f.tiles_w / f.tiles_h;
    const int first_k = blockIdx.y * BLOCK_K;
    const int k = threadIdx.x / PIXEL_GROUPS * THREAD_K;
    const int column = threadIdx.x % GROUPS_W * PIXELS, row = threadIdx.x % PIXEL_GROUPS / GROUPS_W;
    const T *const from = images + image * f.h * f.w * CHANNELS;
    const int top = tile_h * STRIDE_H - f.before_h, left = tile_w * STRIDE_W - f.before_w;

    float sum[PIXELS][THREAD_K];
#pragma unroll
    for (int i = 0; i < PIXELS; i++)
#pragma unroll
        for (int j = 0; j < THREAD_K; j++) sum[i][j] = 0.0f;

    for (int chunk = 0; chunk < CHANNELS; chunk += CHUNK) {
        if (chunk > 0) __syncthreads();
        stage_input(shared, from, f.h, f.w, top, left, chunk);
        stage_weights(shared, weight, scale, chunk, first_k);
        __syncthreads();
        for (int c = 0; c < CHUNK; c++)
#pragma unroll 1
            for (int r = 0; r < R; r++) {
                float under[UNDER];
#pragma unroll
                for (int x = 0; x < UNDER; x += 4) {
                    const float4 quad = *(const float4 *)&shared.input[c][row * STRIDE_H + r][column * STRIDE_W + x];
                    under[x] = quad.x, under[x + 1] = quad.y, under[x + 2] = quad.z, under[x + 3] = quad.w;
                }
#pragma unroll
                for (int s = 0; s < S; s++) {
                    float by[THREAD_K];
#pragma unroll
                    for (int j = 0; j < THREAD_K; j += VECTOR) {
                        const Weights several = *(const Weights *)&shared.weight[c][r][s][k + j];
#pragma unroll
                        for (int l = 0; l < VECTOR; l++) by[j + l] = several.at[l];
                    }
#pragma unroll
                    for (int i = 0; i < PIXELS; i++)
#pragma unroll
                        for (int j = 0; j < THREAD_K; j++) sum[i][j] += under[i * STRIDE_W + s] * by[j];
                }
            }
    }

    if (tile_h + row >= f.p) return;
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
        if (tile_w + column + i >= f.q) break;
#pragma unroll
        for (int j = 0; j < THREAD_K; j++) {
            const int at = first_k + k + j, place = at / OUT, channel = at % OUT;
            const int y = (tile_h + row) * SHUFFLE_H + place / SHUFFLE_W, x = (tile_w + column + i) * SHUFFLE_W + place % SHUFFLE_W;
            if (at >= WANTED || y >= f.out_h || x >= f.out_w) continue;
            float value = sum[i][j];
            if (bias) value += widen(bias[channel]);
            if (f.relu && value < 0.0f) value = 0.0f;
            out[((image * f.out_h + y) * f.out_w + x) * OUT + channel] = narrow<T>(value);
        }
    }
}
