// What the convolution kernels share: sizes, and how a convolution becomes a product of matrices without copying images.
//
// A row of the left matrix is an output pixel, its depth are the values under the filter there. Where the value of a row
// and a depth lies is the sum of an address that depends on the row alone and an offset that depends on the depth alone,
// so a table of offsets is all that tells one filter size, dilation or parity from another.
#pragma once
#include "product.cuh"

struct Geometry {
    int n, c, h, w;
    int k, r, s;
    int p, q;
    int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    int groups;
};

// One depth (or four, where channels come in fours) relative to a row's window.
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

template <class T, class A, int WIDTH, int DEPTH, int THREADS, bool Vector> struct Gathered {
    typedef QuadsAlongDepth<WIDTH, DEPTH, THREADS> Quads;
    // All loads of a thread are at the same depth unless slices make the step deeper.
    static constexpr int DEPTHS = DEPTH == 8 ? 1 : Quads::LOADS;
    const T *origin[Quads::LOADS];
    int top[Quads::LOADS], side[Quads::LOADS];
    int height, width;
    const Window *table;
    Window ahead[DEPTHS];
    A held[Quads::LOADS][4];

    __device__ __forceinline__ Gathered(const T *images, const Rows &rows, u32 first, const Window *windows, int begin)
        : height(rows.height), width(rows.width) {
        table = windows + begin / (Vector ? 4 : 1);
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            const u32 row = first + Quads::line(load);
            const u32 image = row / (rows.count_h * rows.count_w), pixel = row % (rows.count_h * rows.count_w);
            top[load] = (int)(pixel / rows.count_w) * rows.step_h - rows.start_h;
            side[load] = (int)(pixel % rows.count_w) * rows.step_w - rows.start_w;
            origin[load] = images + (((i64)image * height + top[load]) * width + side[load]) * rows.pitch;
            if (row >= rows.rows || !Quads::moves(load)) top[load] = OUTSIDE;
        }
        look_ahead();
    }
    __device__ __forceinline__ void look_ahead() {
        if (Vector) {
#pragma unroll
            for (int i = 0; i < DEPTHS; i++) ahead[i] = table[Quads::depth(i) / 4];
        }
    }
    __device__ __forceinline__ bool inside(int load, const Window &window) const {
        return (u32)(top[load] + window.down) < (u32)height && (u32)(side[load] + window.right) < (u32)width;
    }
    __device__ __forceinline__ void fetch() {
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            if (Vector) {
                const Window window = ahead[DEPTHS == 1 ? 0 : load];
                read_quad<true>(held[load], origin[load] + window.offset, inside(load, window) ? 4 : 0);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const Window window = table[Quads::depth(load) + j];
                    held[load][j] = inside(load, window) ? A(widen(origin[load][window.offset])) : A(0);
                }
            }
        }
        table += DEPTH / (Vector ? 4 : 1);
        look_ahead();
    }
    __device__ __forceinline__ void store(A *stage) { Quads::store(stage, held); }
};
