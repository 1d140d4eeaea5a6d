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
// ELEMENT, BIAS_ELEMENT: types of images and bias. CHANNELS, WANTED: of input and output (of all places of a window).
// R, S: taps. BLOCK_K: channels of a block.
#include "prelude.cuh"

#ifndef ELEMENT
#define ELEMENT float
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
#ifndef SHUFFLE_H
#define SHUFFLE_H 1
#define SHUFFLE_W 1
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
constexpr int WIDTH = (WANTED + THREAD_K - 1) / THREAD_K * THREAD_K;
struct __align__(4 * VECTOR) Weights { float at[VECTOR]; };

struct Shared {
    float input[CHUNK][ROWS][PITCH];
    float weight[CHUNK][R][S][BLOCK_K];
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

// Packed filters are [channel][r][s][WIDTH]. Blocks: x over tiles of images, y over parts of BLOCK_K channels.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
conv2d_direct(const T *__restrict__ images, const float *__restrict__ packed, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const Frame f) {
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
        for (int at = threadIdx.x; at < ROWS * PITCH * CHUNK; at += THREADS) {
            const int c = at % CHUNK, x = at / CHUNK % PITCH, y = at / CHUNK / PITCH;
            const bool inside = (u32)(top + y) < (u32)f.h && (u32)(left + x) < (u32)f.w && (CHANNELS % CHUNK == 0 || chunk + c < CHANNELS);
            shared.input[c][y][x] = inside ? widen(from[((i64)(top + y) * f.w + left + x) * CHANNELS + chunk + c]) : 0.0f;
        }
        for (int at = threadIdx.x; at < CHUNK * R * S * BLOCK_K; at += THREADS) {
            const int c = at / (R * S * BLOCK_K);
            const bool there = (WIDTH % BLOCK_K == 0 || first_k + at % BLOCK_K < WIDTH) && (CHANNELS % CHUNK == 0 || chunk + c < CHANNELS);
            (&shared.weight[0][0][0][0])[at] = there ? packed[(i64)(chunk * R * S + at / BLOCK_K) * WIDTH + first_k + at % BLOCK_K] : 0.0f;
        }
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
                    float weight[THREAD_K];
#pragma unroll
                    for (int j = 0; j < THREAD_K; j += VECTOR) {
                        const Weights several = *(const Weights *)&shared.weight[c][r][s][k + j];
#pragma unroll
                        for (int l = 0; l < VECTOR; l++) weight[j + l] = several.at[l];
                    }
#pragma unroll
                    for (int i = 0; i < PIXELS; i++)
#pragma unroll
                        for (int j = 0; j < THREAD_K; j++) sum[i][j] += under[i * STRIDE_W + s] * weight[j];
                }
            }
    }

    constexpr int PLACES = SHUFFLE_H * SHUFFLE_W, OUT = WANTED / PLACES;
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
