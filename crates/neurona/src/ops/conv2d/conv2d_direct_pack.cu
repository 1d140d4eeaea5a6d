// Filters [k, c, r, s] as conv2d_direct.cu takes them: [channel][row][column][output channel].
//
// WEIGHT_ELEMENT, SCALE_ELEMENT: types of the filters and their scales. INPUT_GRAD: for the gradient by the input, whose
// windows see each remainder of the stride as channels of its own.
#include "prelude.cuh"

#ifndef WEIGHT_ELEMENT
#define WEIGHT_ELEMENT float
#endif
#ifndef SCALE_ELEMENT
#define SCALE_ELEMENT WEIGHT_ELEMENT
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#endif

struct Filter {
    int k, c, r, s;
    // Rows, columns and width of the packed filters.
    int rows, columns, width;
    // For the gradient by the input: where the first row and column of a window lie relative to its pixel.
    int stride_h, stride_w, padding_h, padding_w, first_h, first_w;
};

extern "C" __global__ void conv2d_direct_pack(const WEIGHT_ELEMENT *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, float *__restrict__ packed, const Filter f) {
    const i64 elements = (i64)(INPUT_GRAD ? f.k : f.c) * f.rows * f.columns * f.width;
    for (i64 at = first_element(); at < elements; at += element_stride()) {
        const int wanted = (int)(at % f.width), column = (int)(at / f.width % f.columns), row = (int)(at / f.width / f.columns % f.rows);
        const int channel = (int)(at / f.width / f.columns / f.rows);
#if INPUT_GRAD
        const int place = wanted / f.c, k = channel, c = wanted % f.c;
        const int r = place / f.stride_w + f.padding_h - (f.first_h + row) * f.stride_h;
        const int s = place % f.stride_w + f.padding_w - (f.first_w + column) * f.stride_w;
        const bool there = place < f.stride_h * f.stride_w && r >= 0 && r < f.r && s >= 0 && s < f.s;
#else
        const int k = wanted, c = channel, r = row, s = column;
        const bool there = k < f.k;
#endif
        float value = 0.0f;
        if (there) {
            value = widen(weight[(((i64)k * f.c + c) * f.r + r) * f.s + s]);
            if (scale) value *= widen(scale[k]);
        }
        packed[at] = value;
    }
}
