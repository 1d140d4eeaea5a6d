// The gradients of a convolution by its filters and its bias: for each group a product of the output's gradient,
// transposed, with the gathered input, summed over all output pixels. The pixels are cut into parts, whose sums are added
// in their order, so that the result is the same in every run.
//
// ELEMENT: type of the images. VECTOR_LEFT, VECTOR_RIGHT: output and input channels of a group come in fours.
#include "conv2d.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define THREAD_M 8
#define THREAD_N 8
#define SLICES 1
#endif
#ifndef VECTOR_LEFT
#define VECTOR_LEFT 1
#define VECTOR_RIGHT 1
#endif
#ifndef RESIDENT
#define RESIDENT 2
#endif

typedef ELEMENT T;
typedef Wide<T> A;
typedef Product<A, TILE_M, TILE_N, THREAD_M, THREAD_N, SLICES> Tile;
typedef AcrossDepth<T, A, TILE_M, Tile::DEPTH, Tile::THREADS, VECTOR_LEFT> Left;

// The right matrix: at each depth (output pixel) the values under the filter, taps first, then channels.
struct Right {
    typedef QuadsAcrossDepth<TILE_N, Tile::DEPTH, Tile::THREADS> Quads;
    static constexpr int PIECES = VECTOR_RIGHT ? 1 : 4;
    const T *image[Quads::LOADS];
    int p[Quads::LOADS], q[Quads::LOADS], remaining[Quads::LOADS];
    // Row and column of each value relative to the corner of a window, and its offset in memory.
    int down[Quads::LOADS][PIECES], side[Quads::LOADS][PIECES], offset[Quads::LOADS][PIECES];
    A held[Quads::LOADS][4];
    int rows_of_step, columns_of_step;
    i64 images_of_step;

    __device__ __forceinline__ Right(const T *images, const Geometry &g, int first_column, u32 begin, u32 end) {
        const int channels = g.c / g.groups, columns = g.r * g.s * channels;
        columns_of_step = Tile::DEPTH % g.q;
        rows_of_step = Tile::DEPTH / g.q % g.p;
        images_of_step = (i64)(Tile::DEPTH / g.q / g.p) * g.h * g.w * g.c;
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            const u32 pixel = begin + Quads::depth(load);
            q[load] = (int)(pixel % g.q);
            p[load] = (int)(pixel / g.q % g.p);
            image[load] = images + (i64)(pixel / g.q / g.p) * g.h * g.w * g.c;
            remaining[load] = Quads::moves(load) ? (int)(end - pixel) : 0;
#pragma unroll
            for (int j = 0; j < PIECES; j++) {
                const int column = first_column + Quads::line(load) + j, tap = column / channels;
                down[load][j] = tap / g.s * g.dilation_h - g.padding_h;
                side[load][j] = tap % g.s * g.dilation_w - g.padding_w;
                offset[load][j] = (down[load][j] * g.w + side[load][j]) * g.c + column % channels;
                if (column >= columns) down[load][j] = OUTSIDE;
            }
        }
    }
    __device__ __forceinline__ void fetch(const Geometry &g) {
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            const int top = p[load] * g.stride_h, left = q[load] * g.stride_w;
            const T *const corner = image[load] + ((i64)top * g.w + left) * g.c;
#pragma unroll
            for (int j = 0; j < PIECES; j++) {
                const bool inside = remaining[load] > 0 && (u32)(top + down[load][j]) < (u32)g.h && (u32)(left + side[load][j]) < (u32)g.w;
                if (VECTOR_RIGHT) read_quad<true>(held[load], corner + offset[load][j], inside ? 4 : 0);
                else held[load][j] = inside ? A(widen(corner[offset[load][j]])) : A(0);
            }
            remaining[load] -= Tile::DEPTH;
            // The next step's pixel without a division.
            q[load] += columns_of_step;
            p[load] += rows_of_step;
            image[load] += images_of_step;
            if (q[load] >= g.q) q[load] -= g.q, p[load]++;
            if (p[load] >= g.p) p[load] -= g.p, image[load] += (i64)g.h * g.w * g.c;
        }
    }
    __device__ __forceinline__ void store(A *stage) { Quads::store(stage, held); }
};

// Binds the sizes, which are the same for all threads and need no registers.
struct RightOf {
    Right right;
    const Geometry &g;
    __device__ __forceinline__ void fetch() { right.fetch(g); }
    __device__ __forceinline__ void store(A *stage) { right.store(stage); }
};

// Blocks: x over tiles, columns first; y over parts of `part` pixels; z over groups. Sums go to `parts` [part][k][r, s,
// channel], those of the bias to `bias_parts` [part][k] unless it is null.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, RESIDENT)
conv2d_weight_grad(const T *__restrict__ images, const T *__restrict__ dy, A *__restrict__ parts, A *__restrict__ bias_parts, const Geometry g, const int part) {
    __shared__ typename Tile::Shared shared;
    const int wanted = g.k / g.groups, columns = g.r * g.s * (g.c / g.groups);
    const int column_tiles = (columns + TILE_N - 1) / TILE_N;
    const int column = blockIdx.x % column_tiles * TILE_N, row = blockIdx.x / column_tiles * TILE_M;
    const int group = blockIdx.z;
    const u32 pixels = (u32)g.n * g.p * g.q;
    const u32 begin = blockIdx.y * (u32)part, end = min(pixels, begin + part);
    Left left(dy + group * wanted, row, wanted, g.k, begin, end);
    RightOf right = {Right(images + group * (g.c / g.groups), g, column, begin, end), g};
    const int steps = (int)(end - begin + Tile::DEPTH - 1) / Tile::DEPTH;
    Tile tile;
    const bool with_bias = bias_parts && column == 0;
    A bias = A(0);
    tile.accumulate(left, right, steps, shared, [&](const typename Tile::Stage &stage) {
        if (with_bias && threadIdx.x < TILE_M)
            for (int depth = 0; depth < Tile::DEPTH; depth++) bias += stage.left[depth][threadIdx.x];
    });
    if (with_bias && threadIdx.x < TILE_M && row + threadIdx.x < wanted)
        bias_parts[(i64)blockIdx.y * g.k + group * wanted + row + threadIdx.x] = bias;
    const bool vector = columns % 4 == 0;
    A *const to = parts + ((i64)blockIdx.y * g.k + group * wanted) * columns;
    tile.for_each_quad([&](int i, int j, const A(&values)[4]) {
        if (row + i >= wanted || column + j >= columns) return;
        A *const at = to + (i64)(row + i) * columns + column + j;
        if (vector) {
            Quad<A> quad;
#pragma unroll
            for (int l = 0; l < 4; l++) quad.at[l] = values[l];
            *(Quad<A> *)at = quad;
        } else {
#pragma unroll
            for (int l = 0; l < 4; l++)
                if (column + j + l < columns) at[l] = values[l];
        }
    });
}

