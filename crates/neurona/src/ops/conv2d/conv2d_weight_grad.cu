// The gradients of a convolution by its filters and its bias: for each group a product of the output's gradient,
// transposed, with the gathered input, summed over all output pixels. The pixels are cut into parts, whose sums are added
// in their order, so that the result is the same in every run.
//
// ELEMENT: type of the images. PIECE_LEFT, PIECE_RIGHT: output and input channels that are read at once; those of a group
// are a multiple of it. The tile: see tile.cuh.
#include "conv2d.cuh"
#include "tile.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef PIECE_LEFT
#define PIECE_LEFT 4
#define PIECE_RIGHT 4
#endif

typedef ELEMENT T;
typedef Wide<T> A;
typedef TileOf<T, true, true> Tile;
typedef AcrossDepth<T, Tile::Left, PIECE_LEFT> Left;

// The right matrix: at each depth (output pixel) the values under the filter, taps first, then channels.
struct Right {
    typedef Tile::Right Runs;
    static constexpr int PIECE_SIZE = PIECE_RIGHT, PIECES = Runs::LENGTH / PIECE_SIZE;
    const T *image[Runs::LOADS];
    int p[Runs::LOADS], q[Runs::LOADS], remaining[Runs::LOADS];
    // Row and column of each value relative to the corner of a window, and its offset in memory.
    int down[Runs::LOADS][PIECES], side[Runs::LOADS][PIECES], offset[Runs::LOADS][PIECES];
    const Geometry &g;
    int rows_of_step, columns_of_step;
    i64 images_of_step;

    __device__ __forceinline__ Right(const T *images, const Geometry &g, int first_column, u32 begin, u32 end) : g(g) {
        const int channels = g.c / g.groups, columns = g.r * g.s * channels;
        columns_of_step = Tile::DEPTH % g.q;
        rows_of_step = Tile::DEPTH / g.q % g.p;
        images_of_step = (i64)(Tile::DEPTH / g.q / g.p) * g.h * g.w * g.c;
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
            const u32 pixel = begin + Runs::depth(load);
            q[load] = (int)(pixel % g.q);
            p[load] = (int)(pixel / g.q % g.p);
            image[load] = images + (i64)(pixel / g.q / g.p) * g.h * g.w * g.c;
            remaining[load] = Runs::moves(load) ? (int)(end - pixel) : 0;
#pragma unroll
            for (int j = 0; j < PIECES; j++) {
                const int column = first_column + Runs::line(load) + j * PIECE_SIZE, tap = column / channels;
                down[load][j] = tap / g.s * g.dilation_h - g.padding_h;
                side[load][j] = tap % g.s * g.dilation_w - g.padding_w;
                offset[load][j] = (down[load][j] * g.w + side[load][j]) * g.c + column % channels;
                if (column >= columns) down[load][j] = OUTSIDE;
            }
        }
    }
    template <class OnPiece> __device__ __forceinline__ void advance(OnPiece piece) {
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
            const int top = p[load] * g.stride_h, left = q[load] * g.stride_w;
            const T *const corner = image[load] + ((i64)top * g.w + left) * g.c;
#pragma unroll
            for (int j = 0; j < PIECES; j++) {
                const bool inside = remaining[load] > 0 && (u32)(top + down[load][j]) < (u32)g.h && (u32)(left + side[load][j]) < (u32)g.w;
                piece(load, j * PIECE_SIZE, corner + offset[load][j], inside);
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
    Mover<Left, T, Tile::Element> left(Left(dy + group * wanted, row, wanted, g.k, begin, end));
    Mover<Right, T, Tile::Element> right(Right(images + group * (g.c / g.groups), g, column, begin, end));
    const int steps = (int)(end - begin + Tile::DEPTH - 1) / Tile::DEPTH;
    Tile tile;
    const bool with_bias = bias_parts && column == 0;
    A bias = A(0);
    accumulate(tile, left, right, steps, shared, [&](const typename Tile::Stage &stage) {
        if (with_bias && threadIdx.x < TILE_M)
            for (int depth = 0; depth < Tile::DEPTH; depth++) bias += widen(Tile::left_at(stage, threadIdx.x, depth));
    });
    if (with_bias && threadIdx.x < TILE_M && row + threadIdx.x < wanted)
        bias_parts[(i64)blockIdx.y * g.k + group * wanted + row + threadIdx.x] = bias;
    const bool vector = columns % 4 == 0;
    A *const to = parts + ((i64)blockIdx.y * g.k + group * wanted) * columns;
    tile.for_each_quad([&](int i, int j, const Quad<A> &values) {
        if (row + i < wanted && column + j < columns)
            write_quad(to + (i64)(row + i) * columns + column + j, values, columns - column - j, vector);
    });
}
