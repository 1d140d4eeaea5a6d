// Average pooling of images [n, h, w, c].
#include "windows.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
// Whether zeros of the padding count as elements.
#ifndef COUNT_PADDING
#define COUNT_PADDING 1
#endif

typedef ELEMENT T;
typedef Wide<T> W;

// How many positions of an axis window o counts: those of the image, or with padding all but the ones that a window kept
// by ceil mode has past the padding.
__device__ __forceinline__ int counted(int o, int window, int stride, int padding, int size) {
    if (!COUNT_PADDING) {
        Span span = covered(o, window, stride, padding, size);
        return span.end - span.start;
    }
    int left = size + 2 * padding - o * stride;
    return window < left ? window : left;
}
__device__ __forceinline__ W cells(int oy, int ox, const Images &g) {
    // The product may pass 31 bits.
    return (W)counted(oy, WINDOW_HEIGHT, STRIDE_DOWN, PADDING_DOWN, g.h) * (W)counted(ox, WINDOW_WIDTH, STRIDE_ACROSS, PADDING_ACROSS, g.w);
}

extern "C" __global__ void avg_pool2d(const T *__restrict__ x, T *__restrict__ y, Images g) {
    INDEX total = (INDEX)g.n * g.oh * g.ow * (g.c / V);
    for (INDEX i = first_element(); i < total; i += element_stride()) {
        Place at(i, g.oh, g.ow, g.c);
        Span ys = covered(at.y, WINDOW_HEIGHT, STRIDE_DOWN, PADDING_DOWN, g.h);
        Span xs = covered(at.x, WINDOW_WIDTH, STRIDE_ACROSS, PADDING_ACROSS, g.w);
        W sum[V] = {};
        auto load = [&](int iy, int ix) { return load_group(x + offset(at.image, iy, ix, at.channel, g.h, g.w, g.c)); };
        auto add = [&](const Group<T> &cell, int, int, bool inside) {
            for (int k = 0; k < V; k++) sum[k] += inside ? widen(cell.at[k]) : 0;
        };
        each_cell<WINDOW_HEIGHT, WINDOW_WIDTH>(at.y * STRIDE_DOWN - PADDING_DOWN, at.x * STRIDE_ACROSS - PADDING_ACROSS, ys, xs, g.h, g.w,
                                               load, add);
        W count = cells(at.y, at.x, g);
        for (int k = 0; k < V; k++) sum[k] /= count;
        store_narrow(y + (i64)i * V, sum);
    }
}

// Every cell collects from the windows that cover it, so that no two threads write one cell.
extern "C" __global__ void avg_pool2d_gradient(const T *__restrict__ dy, T *__restrict__ dx, Images g) {
    INDEX total = (INDEX)g.n * g.h * g.w * (g.c / V);
    for (INDEX i = first_element(); i < total; i += element_stride()) {
        Place at(i, g.h, g.w, g.c);
        Span ys = covering(at.y, WINDOW_HEIGHT, STRIDE_DOWN, PADDING_DOWN, g.oh);
        Span xs = covering(at.x, WINDOW_WIDTH, STRIDE_ACROSS, PADDING_ACROSS, g.ow);
        W sum[V] = {};
        auto load = [&](int oy, int ox) { return load_group(dy + offset(at.image, oy, ox, at.channel, g.oh, g.ow, g.c)); };
        auto add = [&](const Group<T> &slope, int oy, int ox, bool inside) {
            W count = cells(oy, ox, g);
            for (int k = 0; k < V; k++) sum[k] += inside ? widen(slope.at[k]) / count : 0;
        };
        each_cell<REACH_DOWN, REACH_ACROSS>((at.y + PADDING_DOWN) / STRIDE_DOWN - REACH_DOWN + 1,
                                            (at.x + PADDING_ACROSS) / STRIDE_ACROSS - REACH_ACROSS + 1, ys, xs, g.oh, g.ow, load, add);
        store_narrow(dx + (i64)i * V, sum);
    }
}
