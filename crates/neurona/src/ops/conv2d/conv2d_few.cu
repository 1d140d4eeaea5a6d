// Convolution forward of images with few channels, and its gradient by the input where the output has few, on tensor cores.
//
// A block has all filters in shared memory and goes through tiles of TILE_H × TILE_W outputs; its warps multiply the windows
// of 16 pixels at a time by the filters. The columns of the filters' matrix are in an order that gives each thread
// neighbouring channels of a pixel, so that results go from registers to memory in long pieces.
//
// ELEMENT, WEIGHT_ELEMENT, SCALE_ELEMENT, BIAS_ELEMENT: types of images, filters [k, c, r, s], their scales and bias.
// CHANNELS, WANTED: of input and output. R, S: taps. INPUT_GRAD: filters are turned, and their c are the wanted channels.
#include "window_rows.cuh"

#ifndef ELEMENT
#define ELEMENT bf16
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
#define WANTED 32
#define R 3
#define S 3
#define STRIDE_H 1
#define STRIDE_W 1
#define TILE_H 8
#define TILE_W 32
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#endif

typedef ELEMENT T;
typedef WindowRows<T, CHANNELS, R, S, STRIDE_H, STRIDE_W, TILE_H, TILE_W> Windows;

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int STEPS = (Windows::DEPTHS + 15) / 16, DEPTH = STEPS * 16;
// Eight rows of filters lie in different banks.
constexpr int PITCH = DEPTH + 8;
constexpr int COLUMNS = (WANTED + 7) / 8, LINES = (COLUMNS + 1) / 2 * 16;
// Matrices of 16 pixels that a warp multiplies by the filters it has just read: as many as registers hold sums for.
constexpr int AT_ONCE = COLUMNS <= 8 ? 2 : 1;
// Blocks of a multiprocessor hide each other's way from memory.
constexpr int RESIDENT = COLUMNS <= 2 ? 6 : COLUMNS <= 4 ? 5 : 4;
// Channels of a thread: 8 in each group of four columns' matrices, and fewer in a last group.
constexpr int LAST = COLUMNS % 4 * 2;
constexpr int VECTOR = WANTED % 8 == 0 && LAST == 0 ? 8 : WANTED % 4 == 0 && LAST % 4 == 0 ? 4 : WANTED % 2 == 0 ? 2 : 1;

struct Shared {
    __align__(16) T weight[LINES][PITCH];
    float bias[LINES];
    __align__(16) T rows[Windows::SIZE];
};

struct Frame {
    int h, w, p, q;
    // What lies before the first window.
    int before_h, before_w;
    int tiles_h, tiles_w, tiles;
    int relu;
};

// The channel of a column of a matrix: threads 4i to 4i + 3 have two columns of each matrix.
__device__ __forceinline__ int channel(int matrix, int column) {
    const int group = matrix / 4, matrices = COLUMNS - group * 4 < 4 ? COLUMNS - group * 4 : 4;
    return group * 32 + column / 2 * 2 * matrices + matrix % 4 * 2 + column % 2;
}

__device__ __forceinline__ float filter(const WEIGHT_ELEMENT *weight, const SCALE_ELEMENT *scale, int wanted, int depth) {
    const int r = depth / Windows::RUN, s = depth % Windows::RUN / CHANNELS, c = depth % Windows::RUN % CHANNELS;
#if INPUT_GRAD
    return widen(weight[(((i64)c * WANTED + wanted) * R + R - 1 - r) * S + S - 1 - s]);
#else
    const float value = widen(weight[(((i64)wanted * CHANNELS + c) * R + r) * S + s]);
    return scale ? value * widen(scale[wanted]) : value;
#endif
}

// Blocks: x, each with every gridDim.x-th tile.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
conv2d_few(const T *__restrict__ images, const WEIGHT_ELEMENT *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const Frame f) {
    take_turn();
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, quarter = lane % 4;

    for (int at = threadIdx.x; at < LINES * DEPTH; at += THREADS) {
        const int depth = at % DEPTH, row = at / DEPTH, wanted = channel(row / 8, row % 8);
        const bool there = row / 8 < COLUMNS && wanted < WANTED && depth < Windows::DEPTHS && depth % Windows::RUN < Windows::WINDOW;
        shared.weight[row][depth] = narrow<T>(there ? filter(weight, scale, wanted, depth) : 0.0f);
    }
    for (int at = threadIdx.x; at < LINES; at += THREADS) shared.bias[at] = bias && at < WANTED ? widen(bias[at]) : 0.0f;

    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x) {
        const int tile_w = tile % f.tiles_w * TILE_W, tile_h = tile / f.tiles_w % f.tiles_h * TILE_H;
        const i64 image = tile / f.tiles_w / f.tiles_h;
        __syncthreads();
        Windows::bring<THREADS>(shared.rows, images + image * f.h * f.w * CHANNELS, f.h, f.w, tile_h * STRIDE_H - f.before_h, tile_w * STRIDE_W - f.before_w);
        __syncthreads();

        for (int first = warp * AT_ONCE; first < Windows::MATRICES; first += WARPS * AT_ONCE) {
            int begin[AT_ONCE][2];
            float sum[AT_ONCE][COLUMNS][4];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                begin[i][0] = Windows::begin((first + i) * 16 + line);
                begin[i][1] = Windows::begin((first + i) * 16 + line + 8);
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
#pragma unroll
                    for (int l = 0; l < 4; l++) sum[i][j][l] = 0.0f;
            }
#pragma unroll(STEPS <= 6 ? STEPS : 2)
            for (int step = 0; step < STEPS; step++) {
                const typename Windows::Pair low = Windows::pair(step * 16 + quarter * 2), high = Windows::pair(step * 16 + quarter * 2 + 8);
                u32 left[AT_ONCE][4];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    left[i][0] = Windows::read(shared.rows, begin[i][0], low);
                    left[i][1] = Windows::read(shared.rows, begin[i][1], low);
                    left[i][2] = Windows::read(shared.rows, begin[i][0], high);
                    left[i][3] = Windows::read(shared.rows, begin[i][1], high);
                }
#pragma unroll
                for (int j = 0; j < COLUMNS; j += 2) {
                    u32 right[4];
                    ldmatrix_x4(right, &shared.weight[j * 8 + lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++) {
                        tensor_multiply(sum[i][j], left[i], right, T());
                        if (j + 1 < COLUMNS) tensor_multiply(sum[i][j + 1], left[i], right + 2, T());
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int pixel = (first + i) * 16 + line + half * 8;
                    const int y = tile_h + pixel / TILE_W, x = tile_w + pixel % TILE_W;
                    if (pixel >= Windows::PIXELS || y >= f.p || x >= f.q) continue;
                    T *const to = out + ((image * f.p + y) * f.q + x) * WANTED;
#pragma unroll
                    for (int j = 0; j < COLUMNS; j += 4) {
                        const int matrices = COLUMNS - j < 4 ? COLUMNS - j : 4, from = j * 8 + quarter * 2 * matrices;
#pragma unroll
                        for (int l = 0; l < 2 * matrices; l += VECTOR) {
                            Piece<T, VECTOR> piece;
#pragma unroll
                            for (int v = 0; v < VECTOR; v++) {
                                float value = sum[i][j + (l + v) / 2][half * 2 + (l + v) % 2] + shared.bias[from + l + v];
                                if (f.relu && value < 0.0f) value = 0.0f;
                                piece.at[v] = narrow<T>(value);
                            }
                            if (from + l < WANTED) *(Piece<T, VECTOR> *)&to[from + l] = piece;
                        }
                    }
                }
        }
    }
}
