// The gradients by filters and bias of images with few channels, on tensor cores.
//
// A block goes through tiles of TILE_H × TILE_W outputs; 16 pixels at a time are summed. A warp has TAKEN matrices of 16
// depths and all output channels in registers; GROUPS warps have all depths, and SLICES such groups share the pixels. What a
// bias needs is one more depth, of ones.
//
// ELEMENT: type of the images. CHANNELS, WANTED: of input and output. R, S: taps. UNIT, GRADIENT_UNIT: neighbours in memory,
// of input and gradient, that are always inside or outside together, and whole in 16 bytes; the input's from LEAD before the
// first window on.
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
#define UNIT 8
#define LEAD 5
#define GRADIENT_UNIT 8
#endif

typedef ELEMENT T;
typedef WindowRows<T, CHANNELS, R, S, STRIDE_H, STRIDE_W, TILE_H, TILE_W, UNIT, LEAD> Windows;

constexpr int THREADS = 32 * GROUPS * SLICES;
constexpr int COLUMNS = (WANTED + 7) / 8, PAIRS = (COLUMNS + 1) / 2;
constexpr int PIXELS = Windows::MATRICES * 16;
// Matrices of the gradient are read whole where channels fill them: eight pixels' runs of 8 channels lie in different banks.
// Others lie as in memory, and are read value by value.
constexpr bool MATRICES = WANTED % 8 == 0;
constexpr int PITCH = MATRICES ? PAIRS * 16 + 8 : WANTED, GRADIENT = PIXELS * PITCH + (MATRICES ? 0 : COLUMNS * 8);
// Pixels that a thread has side by side: where the windows of four lie, the first's place tells.
constexpr int SIDE = TILE_W % 4 == 0 ? 4 : TILE_W % 2 == 0 ? 2 : 1;
// The depth of the ones: a place that a row has left, or the one after all.
constexpr int ONES = Windows::WINDOW < Windows::RUN ? Windows::WINDOW : Windows::DEPTHS;
constexpr int DEPTH = GROUPS * TAKEN * 16, WIDTH = COLUMNS * 8;
static_assert(ONES < DEPTH, "all depths have a warp");

union Shared {
    struct {
        __align__(16) T gradient[2][(GRADIENT + 7) / 8 * 8];
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

// The pixel of a matrix that is number `k` of the summed ones: a thread has 2q, 2q + 1, 2q + 8 and 2q + 9.
__device__ __forceinline__ int pixel_of(int k) { return SIDE == 4 ? k % 8 / 2 * 4 + k / 8 * 2 + k % 2 : k; }

// Starts the way of a tile into shared memory. Channels and pixels that are not there were cleared before.
__device__ __forceinline__ void bring_tile(Shared &shared, int stage, const T *images, const T *dy, int tile, const Frame &f) {
    const Place at = place(tile, f);
    Windows::template bring_rows<THREADS>(shared.rows + Windows::place(stage), images + at.image * f.h * f.w * CHANNELS, f.h, f.w, at.h * STRIDE_H - f.padding_h, at.w * STRIDE_W - f.padding_w);
    // Pixels, or whole rows of them.
    constexpr int LENGTH = MATRICES ? WANTED : TILE_W * WANTED, UNITS = LENGTH / GRADIENT_UNIT, RUNS = MATRICES ? Windows::PIXELS : TILE_H;
    const T *const image = dy + at.image * f.p * f.q * WANTED;
    for (int unit = threadIdx.x; unit < RUNS * UNITS; unit += THREADS) {
        const int run = unit / UNITS, x = unit % UNITS * GRADIENT_UNIT;
        const int y = at.h + (MATRICES ? run / TILE_W : run), column = (at.w + (MATRICES ? run % TILE_W : 0)) * WANTED + x;
        const bool there = y < f.p && column < f.q * WANTED;
        bring<GRADIENT_UNIT>(&shared.gradient[stage][run * (MATRICES ? PITCH : LENGTH) + x], there ? &image[(i64)y * f.q * WANTED + column] : dy, there);
    }
}

// Blocks: x, each with every gridDim.x-th tile. `parts`: [block][k][tap][channel]; `bias_parts`: [block][k] or null.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
conv2d_few_weight_grad(const T *__restrict__ images, const T *__restrict__ dy, float *__restrict__ parts, float *__restrict__ bias_parts, const Frame f) {
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
    if (PIXELS != Windows::PIXELS || WANTED % 16 != 0)
        for (int at = threadIdx.x; at < sizeof(shared.gradient) / sizeof(T); at += THREADS) (&shared.gradient[0][0])[at] = T{};
    // Line i of a matrix is depth 2i, line i + 8 the one after it: one read has both.
    typename Windows::Pair pairs[TAKEN];
    u32 ones[TAKEN];
#pragma unroll
    for (int i = 0; i < TAKEN; i++) {
        const int step = group * TAKEN + i;
        pairs[i] = step < Windows::STEPS ? Windows::pair(step, line * 2) : typename Windows::Pair{0, 0u};
        ones[i] = step * 16 + line * 2 == ONES / 2 * 2 ? (u32)narrow<T>(1.0f).bits << ONES % 2 * 16 : 0u;
    }
    __syncthreads();

    int stage = 0;
    if (blockIdx.x < f.tiles) bring_tile(shared, 0, images, dy, blockIdx.x, f);
    cp_async_commit();
    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x, stage ^= 1) {
        // The next tile is on its way while this one is multiplied.
        if (tile + (int)gridDim.x < f.tiles) bring_tile(shared, stage ^ 1, images, dy, tile + gridDim.x, f);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        if (Windows::SHIFTED) {
            Windows::template shift<THREADS>(shared.rows, stage);
            __syncthreads();
        }
        for (int matrix = slice; matrix < Windows::MATRICES; matrix += SLICES) {
            int begin[4];
            u32 right[PAIRS][4];
#pragma unroll
            for (int l = 0; l < 4; l++) {
                const int side = l % SIDE, first = matrix * 16 + pixel_of(quarter * 2 + (l - side) % 2 + (l - side) / 2 * 8);
                begin[l] = (side == 0 ? Windows::window(first) : begin[l - side]) + side * Windows::STEP;
            }
#pragma unroll
            for (int l = 0; l < 4; l++) {
                // Of four or two neighbours, the compiler knows which begin at odd places.
                const bool odd = Windows::SHIFTED && (SIDE > 1 ? (LEAD + l % SIDE * Windows::STEP) % 2 == 1 : begin[l] % 2 == 1);
                begin[l] += (odd ? Windows::COPY - 1 : Windows::place(stage)) + Windows::lane(line * 2);
            }
            if (MATRICES) {
#pragma unroll
                for (int j = 0; j < PAIRS; j++)
                    ldmatrix_x4_transposed(right[j], &shared.gradient[stage][(matrix * 16 + pixel_of(lane % 16)) * PITCH + j * 16 + lane / 16 * 8]);
            } else {
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const T *const from = &shared.gradient[stage][(matrix * 16 + pixel_of(quarter * 2 + half * 8)) * PITCH + j * 8 + line];
                        right[j / 2][j % 2 * 2 + half] = from[0].bits | (u32)from[PITCH].bits << 16;
                    }
            }
#pragma unroll
            for (int i = 0; i < TAKEN; i++) {
                u32 values[4], left[4];
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    values[l] = *(const u32 *)&shared.rows[begin[l] + pairs[i].offset];
                    if (GROUPS > 1 || !Windows::full(i)) values[l] = values[l] & pairs[i].keep | ones[i];
                }
#pragma unroll
                for (int l = 0; l < 4; l += 2) {
                    left[l] = __byte_perm(values[l], values[l + 1], 0x5410);
                    left[l + 1] = __byte_perm(values[l], values[l + 1], 0x7632);
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
