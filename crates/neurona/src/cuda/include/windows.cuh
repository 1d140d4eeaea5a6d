// The geometry of pooling over images [n, h, w, c]. Window and steps are known to the compiler; each thread has V
// neighbouring channels of one pixel.
#pragma once
#include "group.cuh"

#ifndef WINDOW_HEIGHT
#define WINDOW_HEIGHT 2
#define WINDOW_WIDTH 2
#define STRIDE_DOWN 2
#define STRIDE_ACROSS 2
#define PADDING_DOWN 0
#define PADDING_ACROSS 0
#endif
// 32 bits wherever they are enough: dividing 64 costs several times as much.
#ifndef INDEX
#define INDEX u32
#endif

// Sizes of the images before and after.
struct Images {
    int n, h, w, c, oh, ow;
};

// A run of positions along an axis, end excluded.
struct Span {
    int start, end;
};

// The positions of an axis of this size that window o covers, padding left out.
__device__ __forceinline__ Span covered(int o, int window, int stride, int padding, int size) {
    int start = o * stride - padding, end = start + window;
    return {start > 0 ? start : 0, end < size ? end : size};
}

// The windows that cover position i.
__device__ __forceinline__ Span covering(int i, int window, int stride, int padding, int windows) {
    int last = (i + padding) / stride + 1, before = i + padding - window;
    return {before < 0 ? 0 : before / stride + 1, last < windows ? last : windows};
}

// Calls use(load(y, x), y, x, inside) for the cells of ys and xs. Few cells (ROWS by COLUMNS from the corner at most) are
// all loaded before the first is used, those outside from the nearest place that is inside the images: memory answers late.
template <i64 ROWS, i64 COLUMNS, class Load, class Use>
__device__ __forceinline__ void each_cell(int corner_y, int corner_x, Span ys, Span xs, int height, int width, Load load, Use use) {
    if constexpr (ROWS * COLUMNS <= 16) {
        decltype(load(0, 0)) found[ROWS * COLUMNS];
        for (int k = 0; k < ROWS * COLUMNS; k++) {
            int y = corner_y + k / COLUMNS, x = corner_x + k % COLUMNS;
            found[k] = load(y < 0 ? 0 : y < height ? y : height - 1, x < 0 ? 0 : x < width ? x : width - 1);
        }
        for (int k = 0; k < ROWS * COLUMNS; k++) {
            int y = corner_y + k / COLUMNS, x = corner_x + k % COLUMNS;
            use(found[k], y, x, y >= ys.start && y < ys.end && x >= xs.start && x < xs.end);
        }
    } else {
        for (int y = ys.start; y < ys.end; y++)
            for (int x = xs.start; x < xs.end; x++) use(load(y, x), y, x, true);
    }
}

// Windows along an axis that can cover one position.
#define REACH_DOWN ((WINDOW_HEIGHT - 1) / STRIDE_DOWN + 1)
#define REACH_ACROSS ((WINDOW_WIDTH - 1) / STRIDE_ACROSS + 1)

// Where pixel number `i` of images of this height and width stands.
struct Pixel {
    int image, y, x;
    __device__ __forceinline__ Pixel(INDEX i, int height, int width) {
        INDEX row = i / width;
        x = (int)(i - row * width);
        image = (int)(row / height);
        y = (int)(row - (INDEX)image * height);
    }
};

// Where element number `i` stands, counted in vectors.
struct Place : Pixel {
    int channel;
    __device__ __forceinline__ Place(INDEX i, int height, int width, int c) : Pixel(i / (c / V), height, width) {
        channel = (int)(i % (INDEX)(c / V)) * V;
    }
};

__device__ __forceinline__ i64 offset(int image, int y, int x, int channel, int height, int width, int c) {
    return (((i64)image * height + y) * width + x) * c + channel;
}
