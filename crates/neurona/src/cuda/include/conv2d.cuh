// What the convolution kernels share: sizes, and how a convolution becomes a product of matrices without copying images.
//
// A row of the left matrix is an output pixel, its depth are the values under the filter there. Where the value of a row
// and a depth lies is the sum of an address that depends on the row alone and an offset that depends on the depth alone,
// so a table of offsets is all that tells one filter size, dilation or parity from another.
#pragma once
#include "pipeline.cuh"

struct Geometry {
    int n, c, h, w;
    int k, r, s;
    int p, q;
    int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    int groups;
};

// A piece of neighbouring depths relative to a row's window.
struct __align__(16) Window { int offset, down, right, unused; };

// Far enough outside that no row reaches the image.
#define OUTSIDE (1 << 29)

// The filter rows (or columns) that meet outputs at all. In the gradient by the input with a stride, an input row of
// class `a` (its number modulo the stride) meets only every few filter rows: the others would multiply zeros.
struct Taps {
    int first, step, count;
    static __device__ __forceinline__ Taps all(int size) { return {0, 1, size}; }
    static __device__ __forceinline__ Taps of_class(int a, int size, int stride, int padding, int dilation) {
        int step = 1;
        while (step * dilation % stride != 0) step++;
        for (int first = 0; first < step && first < size; first++)
            if ((a + padding - first * dilation) % stride == 0) return {first, step, (size - first + step - 1) / step};
        return {0, 1, 0};
    }
    __device__ __forceinline__ int at(int i) const { return first + i * step; }
};

// The gathered left matrix: images [.., height, width, pitch], read through a table. Rows are output pixels, numbered
// over `count_h` × `count_w` windows of each image, `step` apart, the first one `start` before the image's corner.
struct Rows {
    u32 rows;
    int count_h, count_w, step_h, step_w, start_h, start_w, height, width;
    i64 pitch;
};

// A table's window stands for a piece of `Size` depths.
template <class T, class Layout, int Size> struct Gathered {
    typedef Layout Runs;
    static constexpr int PIECE_SIZE = Size;
    // Windows of whole runs are read a step before they are needed.
    static constexpr bool AHEAD = PIECE_SIZE == Runs::LENGTH;
    static constexpr int DEPTHS = Runs::ONE_DEPTH ? 1 : Runs::LOADS;
    const T *origin[Runs::LOADS];
    int top[Runs::LOADS], side[Runs::LOADS];
    int height, width;
    const Window *table;
    Window ahead[DEPTHS];

    __device__ __forceinline__ Gathered(const T *images, const Rows &rows, u32 first, const Window *windows, int begin)
        : height(rows.height), width(rows.width) {
        table = windows + begin / PIECE_SIZE;
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
            const u32 row = first + Runs::line(load);
            const u32 image = row / (rows.count_h * rows.count_w), pixel = row % (rows.count_h * rows.count_w);
            top[load] = (int)(pixel / rows.count_w) * rows.step_h - rows.start_h;
            side[load] = (int)(pixel % rows.count_w) * rows.step_w - rows.start_w;
            origin[load] = images + (((i64)image * height + top[load]) * width + side[load]) * rows.pitch;
            if (row >= rows.rows || !Runs::moves(load)) top[load] = OUTSIDE;
        }
        look_ahead();
    }
    __device__ __forceinline__ void look_ahead() {
        if (AHEAD) {
#pragma unroll
            for (int i = 0; i < DEPTHS; i++)
                if (Runs::moves(i)) ahead[i] = table[Runs::depth(i) / PIECE_SIZE];
        }
    }
    __device__ __forceinline__ bool inside(int load, const Window &window) const {
        return (u32)(top[load] + window.down) < (u32)height && (u32)(side[load] + window.right) < (u32)width;
    }
    template <class OnPiece> __device__ __forceinline__ void advance(OnPiece piece) {
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++)
#pragma unroll
            for (int j = 0; j < Runs::LENGTH; j += PIECE_SIZE) {
                const Window window = AHEAD ? ahead[DEPTHS == 1 ? 0 : load] : table[(Runs::depth(load) + j) / PIECE_SIZE];
                piece(load, j, origin[load] + window.offset, inside(load, window));
            }
        table += Runs::DEPTH / PIECE_SIZE;
        look_ahead();
    }
};
