// Convolution forward of images with few channels, and its gradient by the input where the output has few, on tensor cores.
//
// A block goes through tiles of TILE_H × TILE_W outputs, the next one's input on its way while its warps multiply the windows
// of 16 pixels at a time by the filters; those are in registers where they fit, else in shared memory. The columns of the filters' matrix are in an order that gives each thread
// neighbouring channels of a pixel, so that results go from registers to memory in long pieces.
//
// ELEMENT, WEIGHT_ELEMENT, SCALE_ELEMENT, BIAS_ELEMENT: types of images, filters [k, c, r, s], their scales and bias.
// CHANNELS, WANTED: of input and output. R, S: taps. UNIT: neighbours in memory that are always inside or outside together,
// from LEAD before the first window on.
// INPUT_GRAD: filters are turned, and their c are the wanted channels.
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
#define UNIT 8
#define LEAD 5
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#endif

typedef ELEMENT T;
typedef WindowRows<T, CHANNELS, R, S, STRIDE_H, STRIDE_W, TILE_H, TILE_W, UNIT, LEAD> Windows;

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int STEPS = Windows::STEPS, DEPTH = STEPS * 16;
// Eight rows of filters lie in different banks.
constexpr int PITCH = DEPTH + 8;
constexpr int COLUMNS = (WANTED + 7) / 8, LINES = (COLUMNS + 1) / 2 * 16;
// Matrices of 16 pixels that a warp multiplies by the filters at a time: as many as registers hold sums for.
constexpr int AT_ONCE = COLUMNS <= 8 ? 2 : 1;
constexpr bool HELD = STEPS * COLUMNS <= 32;
// Blocks of a multiprocessor hide each other's way from memory.
#ifndef RESIDENT
#define RESIDENT (COLUMNS > 4 || HELD && STEPS * COLUMNS > 16 ? 4 : COLUMNS == 1 && HELD ? 8 : 5)
#endif
// Steps of a row of windows, where it has whole ones.
constexpr int ROW_STEPS = Windows::WHOLE ? Windows::RUN / 16 : STEPS;
// Where all windows begin at multiples of four, a thread's values of two registers are neighbours.
constexpr bool WIDE = Windows::STEP % 4 == 0;
// Channels of a thread: 8 in each group of four columns' matrices, and fewer in a last group.
constexpr int LAST = COLUMNS % 4 * 2;
constexpr int VECTOR = WANTED % 8 == 0 && LAST == 0 ? 8 : WANTED % 4 == 0 && LAST % 4 == 0 ? 4 : WANTED % 2 == 0 ? 2 : 1;

struct Shared {
    __align__(16) T weight[LINES][PITCH];
    __align__(8) float bias[LINES];
    __align__(16) T rows[Windows::SIZE];
};

struct Frame {
    int h, w, p, q;
    // What lies before the first window.
    int before_h, before_w;
    int tiles_h, tiles_w, tiles;
    int relu;
};
struct Place {
    int w, h;
    i64 image;
};

// In one instruction, which the compiler does not see by itself.
__device__ __forceinline__ void store_piece(T *to, const Piece<T, VECTOR> &piece) {
    u32 words[VECTOR / 2 + 1];
#pragma unroll
    for (int v = 0; v + 1 < VECTOR; v += 2) words[v / 2] = piece.at[v].bits | (u32)piece.at[v + 1].bits << 16;
    if constexpr (VECTOR == 8) *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
    else if constexpr (VECTOR == 4) *(uint2 *)to = make_uint2(words[0], words[1]);
    else if constexpr (VECTOR == 2) *(u32 *)to = words[0];
    else *to = piece.at[0];
}

// The place in a step of 16 depths that a thread's pair of a register has.
__device__ __forceinline__ u32 slot(u32 quarter, u32 half) { return WIDE ? quarter * 4 + half * 2 : quarter * 2 + half * 8; }

// The channel of a column of a matrix: threads 4i to 4i + 3 have two columns of each matrix.
__device__ __forceinline__ u32 channel(u32 matrix, u32 column) {
    const u32 group = matrix / 4, matrices = COLUMNS - group * 4 < 4 ? COLUMNS - group * 4 : 4;
    return group * 32 + column / 2 * 2 * matrices + matrix % 4 * 2 + column % 2;
}

// Where a weight lies among the filters.
__device__ __forceinline__ u32 filter(u32 wanted, u32 depth) {
    const u32 r = depth / Windows::RUN, s = depth % Windows::RUN / CHANNELS, c = depth % Windows::RUN % CHANNELS;
#if INPUT_GRAD
    return ((c * WANTED + wanted) * R + R - 1 - r) * S + S - 1 - s;
#else
    return ((wanted * CHANNELS + c) * R + r) * S + s;
#endif
}

// Blocks: x, each with every gridDim.x-th tile.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
conv2d_few(const T *__restrict__ images, const WEIGHT_ELEMENT *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const Frame f) {
    extern __shared__ __align__(128) unsigned char room[];
    Shared &shared = *(Shared *)room;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, quarter = lane % 4;

    auto place = [&](int tile) { return Place{tile % f.tiles_w * TILE_W, tile / f.tiles_w % f.tiles_h * TILE_H, tile / f.tiles_w / f.tiles_h}; };
    auto bring_tile = [&](int tile, int stage) {
        const Place at = place(tile);
        if (tile < f.tiles) Windows::template bring_rows<THREADS>(shared.rows + Windows::place(stage), images + at.image * f.h * f.w * CHANNELS, f.h, f.w, at.h * STRIDE_H - f.before_h, at.w * STRIDE_W - f.before_w);
        cp_async_commit();
    };
    bring_tile(blockIdx.x, 0);
    stage<WEIGHT_ELEMENT, COLUMNS * 8 * DEPTH, THREADS, 8>(
        [&](u32 at) {
            const u32 wanted = channel(at / DEPTH / 8, at / DEPTH % 8);
            const u32 depth = at % DEPTH / 16 * 16 + slot(at % 8 / 2, at % 16 / 8) + at % 2;
            const bool there = wanted < WANTED && depth < Windows::DEPTHS && depth % Windows::RUN < Windows::WINDOW;
            return there ? weight[filter(wanted, depth)] : WEIGHT_ELEMENT{};
        },
        [&](u32 at, WEIGHT_ELEMENT value) {
            const u32 wanted = channel(at / DEPTH / 8, at / DEPTH % 8);
            shared.weight[at / DEPTH][at % DEPTH] = narrow<T>(scale && wanted < WANTED ? widen(value) * widen(scale[wanted]) : widen(value));
        });
    for (int at = threadIdx.x; at < COLUMNS * 8; at += THREADS) {
        const int wanted = channel(at / 8, at % 8);
        shared.bias[at] = bias && wanted < WANTED ? widen(bias[wanted]) : 0.0f;
    }
    __syncthreads();
    auto read_filters = [&](u32 *right, int step, int j) { ldmatrix_x4(right, &shared.weight[j * 8 + lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]); };
    u32 held[HELD ? STEPS : 1][HELD ? (COLUMNS + 1) / 2 : 1][4];
    if (HELD)
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 2) read_filters(held[HELD ? step : 0][HELD ? j / 2 : 0], step, j);

    int turn = 0;
    for (int tile = blockIdx.x; tile < f.tiles; tile += gridDim.x, turn ^= 1) {
        const Place at = place(tile);
        T *const tile_out = out + ((at.image * f.p + at.h) * f.q + at.w) * WANTED;
        bring_tile(tile + gridDim.x, turn ^ 1);
        cp_async_wait<1>();
        __syncthreads();
        if (Windows::SHIFTED) {
            Windows::template shift<THREADS>(shared.rows, turn);
            __syncthreads();
        }

        for (int first = warp * AT_ONCE; first < Windows::MATRICES; first += WARPS * AT_ONCE) {
            int begin[AT_ONCE][2];
            float sum[AT_ONCE][COLUMNS][4];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
                for (int half = 0; half < 2; half++)
                    begin[i][half] = Windows::begin(Windows::window((first + i) * 16 + line + half * 8), turn) + Windows::lane(slot(quarter, 0));
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    const float2 from = *(const float2 *)&shared.bias[j * 8 + quarter * 2];
                    sum[i][j][0] = sum[i][j][2] = from.x, sum[i][j][1] = sum[i][j][3] = from.y;
                }
            }
            // Rows of the input that the windows begin in.
            const int top = (at.h + first * 16 / TILE_W) * STRIDE_H - f.before_h, bottom = (at.h + (first * 16 + AT_ONCE * 16 - 1) / TILE_W) * STRIDE_H - f.before_h;
#pragma unroll(HELD ? STEPS : 1)
            for (int row = 0; row < STEPS / ROW_STEPS; row++) {
                // Where windows reach far outside, much of them is zeros.
                if (INPUT_GRAD && ROW_STEPS < STEPS && (bottom + row < 0 || top + row >= f.h)) continue;
#pragma unroll(HELD ? STEPS : 2)
                for (int step = row * ROW_STEPS; step < (row + 1) * ROW_STEPS; step++) {
                    const typename Windows::Pair low = Windows::pair(step, slot(quarter, 0)), high = Windows::pair(step, slot(quarter, 1));
                    u32 left[AT_ONCE][4];
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const T *const from = &shared.rows[begin[i][half] + low.offset];
                            if (WIDE) {
                                const uint2 both = *(const uint2 *)from;
                                left[i][half] = both.x, left[i][half + 2] = both.y;
                            } else {
                                left[i][half] = *(const u32 *)from;
                                left[i][half + 2] = *(const u32 *)(Windows::WHOLE ? from + 8 : &shared.rows[begin[i][half] + high.offset]);
                            }
                            if (!Windows::full(step)) left[i][half] &= low.keep, left[i][half + 2] &= high.keep;
                        }
#pragma unroll
                    for (int j = 0; j < COLUMNS; j += 2) {
                        u32 read[4];
                        if (!HELD) read_filters(read, step, j);
                        const u32 *const right = HELD ? held[HELD ? step : 0][HELD ? j / 2 : 0] : read;
#pragma unroll
                        for (int i = 0; i < AT_ONCE; i++) {
                            tensor_multiply(sum[i][j], left[i], right, T());
                            if (j + 1 < COLUMNS) tensor_multiply(sum[i][j + 1], left[i], right + 2, T());
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int pixel = (first + i) * 16 + line + half * 8;
                    if (pixel >= Windows::PIXELS || at.h + pixel / TILE_W >= f.p || at.w + pixel % TILE_W >= f.q) continue;
                    T *const to = tile_out + (pixel / TILE_W * f.q + pixel % TILE_W) * WANTED;
#pragma unroll
                    for (int j = 0; j < COLUMNS; j += 4) {
                        const int matrices = COLUMNS - j < 4 ? COLUMNS - j : 4, from = j * 8 + quarter * 2 * matrices;
#pragma unroll
                        for (int l = 0; l < 2 * matrices; l += VECTOR) {
                            Piece<T, VECTOR> piece;
#pragma unroll
                            for (int v = 0; v < VECTOR; v++) {
                                const float value = sum[i][j + (l + v) / 2][half * 2 + (l + v) % 2];
                                piece.at[v] = narrow<T>(f.relu && value < 0.0f ? 0.0f : value);
                            }
                            if (from + l < WANTED) store_piece(&to[from + l], piece);
                        }
                    }
                }
        }
        __syncthreads();
    }
}
