// Convolution forward and its gradient by the input, as products with a gathered left matrix (see conv2d.cuh).
//
// ELEMENT, BIAS_ELEMENT: types of the images and of the bias. INPUT_GRAD: the gradient by the input; one product for each
// class of input pixels that meet the same filter taps. PIECE: channels that are read at once; those of a group are a
// multiple of it. The tile: see tile.cuh.
#include "conv2d.cuh"
#include "tile.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef BIAS_ELEMENT
#define BIAS_ELEMENT ELEMENT
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#endif
#ifndef PIECE
#define PIECE 4
#endif

typedef ELEMENT T;
typedef Wide<T> A;
typedef TileOf<T, false, true> Tile;
typedef Tile::Element Packed;
typedef Gathered<T, Tile::Left, PIECE> Left;
typedef AcrossDepth<Packed, Tile::Right, Tile::Right::LENGTH> Right;

__device__ __forceinline__ T finish(A sum, const BIAS_ELEMENT *bias, int channel, int relu) {
    if (bias) sum += A(widen(bias[channel]));
    // Written so that a NaN stays one.
    if (relu && sum < A(0)) sum = A(0);
    return narrow<T>(sum);
}

// Blocks: x over classes, tiles of rows and tiles of columns (fastest); y over parts of the depth; z over groups. `room`
// and `columns`: of the packed filters; `part`: depth of a part. With several parts the sums go to `parts` [part][pixel]
// [channel], and `conv2d_finish` adds them.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, RESIDENT)
conv2d_gather(const T *__restrict__ images, const Packed *__restrict__ packed, const Window *__restrict__ windows, const BIAS_ELEMENT *__restrict__ bias,
              T *__restrict__ out, A *__restrict__ parts, const Geometry g, const int row_tiles, const int room, const int columns, const int part, const int relu) {
    __shared__ typename Tile::Shared shared;
    const int column_tiles = (columns + TILE_N - 1) / TILE_N;
    const int column = blockIdx.x % column_tiles * TILE_N;
    const u32 row = blockIdx.x / column_tiles % row_tiles * TILE_M;
    const int group = blockIdx.z;
    Rows rows;
#if INPUT_GRAD
    const int wanted = g.c / g.groups, channels = g.k / g.groups, height = g.h, width = g.w;
    const int cls = blockIdx.x / column_tiles / row_tiles, class_h = cls / g.stride_w, class_w = cls % g.stride_w;
    const Taps down = Taps::of_class(class_h, g.r, g.stride_h, g.padding_h, g.dilation_h);
    const Taps right_taps = Taps::of_class(class_w, g.s, g.stride_w, g.padding_w, g.dilation_w);
    const int depth = down.count * right_taps.count * channels;
    const int step_h = g.stride_h, step_w = g.stride_w;
    rows.count_h = (g.h - class_h + g.stride_h - 1) / g.stride_h;
    rows.count_w = (g.w - class_w + g.stride_w - 1) / g.stride_w;
    rows.step_h = rows.step_w = 1, rows.start_h = rows.start_w = 0;
    rows.height = g.p, rows.width = g.q, rows.pitch = g.k;
#else
    const int wanted = g.k / g.groups, channels = g.c / g.groups, height = g.p, width = g.q;
    const int cls = 0, class_h = 0, class_w = 0, step_h = 1, step_w = 1;
    const int depth = g.r * g.s * channels;
    rows.count_h = g.p, rows.count_w = g.q;
    rows.step_h = g.stride_h, rows.step_w = g.stride_w, rows.start_h = g.padding_h, rows.start_w = g.padding_w;
    rows.height = g.h, rows.width = g.w, rows.pitch = g.c;
#endif
    rows.rows = (u32)g.n * rows.count_h * rows.count_w;
    if (row >= rows.rows) return;
    const int begin = blockIdx.y * part, end = min(depth, begin + part);
    Mover<Left, T, Packed> left(Left(images + group * channels, rows, row, windows + (i64)cls * (room / PIECE), begin));
    Mover<Right, Packed, Packed> right(Right(packed + ((i64)cls * g.groups + group) * room * columns, column, columns, columns, begin, end));
    Tile tile;
    accumulate(tile, left, right, (end - begin + Tile::DEPTH - 1) / Tile::DEPTH, shared);

    const i64 out_channels = (i64)wanted * g.groups;
    const bool vector = wanted % 4 == 0;
    A *const to = parts + blockIdx.y * ((i64)g.n * height * width * out_channels);
    tile.for_each_quad([&](int i, int j, const Quad<A> &values) {
        u32 pixel = row + i;
        const int count = wanted - column - j, channel = group * wanted + column + j;
        if (pixel >= rows.rows || count <= 0) return;
        if (INPUT_GRAD && (step_h > 1 || step_w > 1)) {
            const u32 image = pixel / (rows.count_h * rows.count_w), rest = pixel % (rows.count_h * rows.count_w);
            pixel = (image * height + rest / rows.count_w * step_h + class_h) * width + rest % rows.count_w * step_w + class_w;
        }
        const i64 at = pixel * out_channels + channel;
        if (gridDim.y > 1) return write_quad(to + at, values, count, vector);
        Quad<T> quad;
#pragma unroll
        for (int l = 0; l < 4; l++) quad.at[l] = finish(values.at[l], bias, min(channel + l, (int)out_channels - 1), relu);
        write_quad(out + at, quad, count, vector);
    });
}

// Adds the parts in their order.
extern "C" __global__ void conv2d_finish(const A *__restrict__ parts, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const i64 elements, const int channels, const int count, const int relu) {
    for (i64 at = first_element(); at < elements; at += element_stride()) {
        A sum = A(0);
        for (int part = 0; part < count; part++) sum += parts[part * elements + at];
        out[at] = finish(sum, bias, (int)(at % channels), relu);
    }
}
