// Max pooling of images [n, h, w, c].
#include "limits.cuh"
#include "windows.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

// The input was a relu's: in the gradient only windows count whose greatest is above 0.
#ifndef RELU
#define RELU 0
#endif

typedef ELEMENT T;
typedef Wide<T> W;

// The greatest of each window, and its place in the window, row by row. The first of equals wins; NaN wins over numbers.
extern "C" __global__ void max_pool2d(const T *__restrict__ x, T *__restrict__ y, u8 *__restrict__ places, Images g) {
    INDEX total = (INDEX)g.n * g.oh * g.ow * (g.c / V);
    for (INDEX i = first_element(); i < total; i += element_stride()) {
        Place at(i, g.oh, g.ow, g.c);
        Span ys = covered(at.y, WINDOW_HEIGHT, STRIDE_DOWN, PADDING_DOWN, g.h);
        Span xs = covered(at.x, WINDOW_WIDTH, STRIDE_ACROSS, PADDING_ACROSS, g.w);
        W best[V];
        Group<u8> place;
        int corner_y = at.y * STRIDE_DOWN - PADDING_DOWN, corner_x = at.x * STRIDE_ACROSS - PADDING_ACROSS;
        int first = (ys.start - corner_y) * WINDOW_WIDTH + xs.start - corner_x;
        for (int k = 0; k < V; k++) best[k] = Limits<W>::least(), place.at[k] = first;
        auto load = [&](int iy, int ix) { return load_group(x + offset(at.image, iy, ix, at.channel, g.h, g.w, g.c)); };
        auto meet = [&](const Group<T> &cell, int iy, int ix, bool inside) {
            int here = (iy - corner_y) * WINDOW_WIDTH + ix - corner_x;
            for (int k = 0; k < V; k++) {
                W value = widen(cell.at[k]);
                if (inside && (value > best[k] || value != value)) best[k] = value, place.at[k] = here;
            }
        };
        each_cell<WINDOW_HEIGHT, WINDOW_WIDTH>(corner_y, corner_x, ys, xs, g.h, g.w, load, meet);
        store_narrow(y + (i64)i * V, best);
        store_group(places + (i64)i * V, place);
    }
}

struct Window {
    Group<T> slope;
    Group<u8> place;
#if RELU
    Group<T> greatest;
#endif
};

// Every cell collects from the windows that cover it, so that no two threads write one cell.
extern "C" __global__ void max_pool2d_gradient(const T *__restrict__ dy, const u8 *__restrict__ places, const T *__restrict__ y,
                                               T *__restrict__ dx, Images g) {
    INDEX total = (INDEX)g.n * g.h * g.w * (g.c / V);
    for (INDEX i = first_element(); i < total; i += element_stride()) {
        Place at(i, g.h, g.w, g.c);
        Span ys = covering(at.y, WINDOW_HEIGHT, STRIDE_DOWN, PADDING_DOWN, g.oh);
        Span xs = covering(at.x, WINDOW_WIDTH, STRIDE_ACROSS, PADDING_ACROSS, g.ow);
        W sum[V] = {};
        auto load = [&](int oy, int ox) {
            i64 from = offset(at.image, oy, ox, at.channel, g.oh, g.ow, g.c);
#if RELU
            return Window{load_group(dy + from), load_group(places + from), load_group(y + from)};
#else
            return Window{load_group(dy + from), load_group(places + from)};
#endif
        };
        auto add = [&](const Window &window, int oy, int ox, bool inside) {
            int here = (at.y + PADDING_DOWN - oy * STRIDE_DOWN) * WINDOW_WIDTH + at.x + PADDING_ACROSS - ox * STRIDE_ACROSS;
            for (int k = 0; k < V; k++) {
                bool counts = inside && window.place.at[k] == here;
#if RELU
                counts = counts && widen(window.greatest.at[k]) > 0;
#endif
                sum[k] += counts ? widen(window.slope.at[k]) : 0;
            }
        };
        each_cell<REACH_DOWN, REACH_ACROSS>((at.y + PADDING_DOWN) / STRIDE_DOWN - REACH_DOWN + 1,
                                            (at.x + PADDING_ACROSS) / STRIDE_ACROSS - REACH_ACROSS + 1, ys, xs, g.oh, g.ow, load, add);
        store_narrow(dx + (i64)i * V, sum);
    }
}
