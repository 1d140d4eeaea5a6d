// Filters [k, c / groups, r, s] as the right matrix of the products in conv2d_gather.cu: a row for each depth, a column
// for each output channel (forward) or input channel (gradient by the input); and the tables of windows. Columns are
// padded to whole runs of the tile's, tables to the deepest step.
//
// WEIGHT_ELEMENT, SCALE_ELEMENT, PACKED_ELEMENT: types of the filters, their scales and the packed ones. INPUT_GRAD: for the
// gradient by the input. PIECE: depths that a window stands for.
#include "conv2d.cuh"

#ifndef WEIGHT_ELEMENT
#define WEIGHT_ELEMENT float
#endif
#ifndef SCALE_ELEMENT
#define SCALE_ELEMENT WEIGHT_ELEMENT
#endif
#ifndef PACKED_ELEMENT
#define PACKED_ELEMENT float
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#endif
#ifndef PIECE
#define PIECE 4
#endif

typedef WEIGHT_ELEMENT Weight;
typedef PACKED_ELEMENT Packed;
typedef Wide<Packed> A;

// The filter taps of a class: one class of all taps forward, one for each parity of input pixels backward.
__device__ __forceinline__ void taps_of(const Geometry &g, int group, Taps &down, Taps &right) {
#if INPUT_GRAD
    down = Taps::of_class(group / g.stride_w, g.r, g.stride_h, g.padding_h, g.dilation_h);
    right = Taps::of_class(group % g.stride_w, g.s, g.stride_w, g.padding_w, g.dilation_w);
#else
    down = Taps::all(g.r), right = Taps::all(g.s);
#endif
}

// The windows of a class.
__device__ __forceinline__ void write_windows(Window *table, const Geometry &g, const Taps &down, const Taps &right, int entries) {
    const int channels = (INPUT_GRAD ? g.k : g.c) / g.groups;
    const int depths = down.count * right.count * channels;
    for (int at = (int)first_element(); at < entries; at += (int)element_stride()) {
        const int depth = at * PIECE;
        Window window = {0, OUTSIDE, OUTSIDE, 0};
        if (depth < depths) {
            const int tap = depth / channels, channel = depth % channels;
            const int r = down.at(tap / right.count), s = right.at(tap % right.count);
#if INPUT_GRAD
            window.down = ((int)blockIdx.y / g.stride_w + g.padding_h - r * g.dilation_h) / g.stride_h;
            window.right = ((int)blockIdx.y % g.stride_w + g.padding_w - s * g.dilation_w) / g.stride_w;
            window.offset = (window.down * g.q + window.right) * g.k + channel;
#else
            window.down = r * g.dilation_h;
            window.right = s * g.dilation_w;
            window.offset = (window.down * g.w + window.right) * g.c + channel;
#endif
        }
        table[at] = window;
    }
}

// Blocks: x over depths and columns, y over classes, z over groups and then the windows. `room`: depths kept for a class;
// `columns`: for a row.
extern "C" __global__ void conv2d_pack(const Weight *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, Packed *__restrict__ packed, Window *__restrict__ windows, const Geometry g, const int room, const int columns) {
    Taps down, right;
    taps_of(g, blockIdx.y, down, right);
    if (blockIdx.z == g.groups) return write_windows(windows + (i64)blockIdx.y * (room / PIECE), g, down, right, room / PIECE);
    const int inner = g.c / g.groups, outer = g.k / g.groups;
    const int channels = INPUT_GRAD ? outer : inner, wanted = INPUT_GRAD ? inner : outer;
    const int depths = down.count * right.count * channels;
    Packed *const to = packed + ((i64)blockIdx.y * g.groups + blockIdx.z) * room * columns;
    for (i64 at = first_element(); at < (i64)depths * columns; at += element_stride()) {
        const int depth = (int)(at / columns), column = (int)(at % columns);
        const int tap = depth / channels, channel = depth % channels;
        const int r = down.at(tap / right.count), s = right.at(tap % right.count);
        const int k = blockIdx.z * outer + (INPUT_GRAD ? channel : column), c = INPUT_GRAD ? column : channel;
        A value = A(0);
        if (column < wanted) {
            value = A(widen(weight[(((i64)k * inner + c) * g.r + r) * g.s + s]));
            if (scale) value *= A(widen(scale[k]));
        }
        to[at] = narrow<Packed>(value);
    }
}
