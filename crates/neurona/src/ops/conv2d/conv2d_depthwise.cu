// Convolution of each channel with a filter of its own (groups = channels): forward and the gradient by the input. There is
// so little arithmetic that memory decides: a thread reads V channels at once, and filters are kept in shared memory.
//
// ELEMENT, WEIGHT_ELEMENT, SCALE_ELEMENT, BIAS_ELEMENT: types of images, filters, their scales and bias. R, S: taps.
// INPUT_GRAD: the gradient by the input.
#include "conv2d.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef WEIGHT_ELEMENT
#define WEIGHT_ELEMENT ELEMENT
#endif
#ifndef SCALE_ELEMENT
#define SCALE_ELEMENT WEIGHT_ELEMENT
#endif
#ifndef BIAS_ELEMENT
#define BIAS_ELEMENT ELEMENT
#endif
#ifndef R
#define R 3
#define S 3
#endif
#ifndef V
#define V 4
#endif
#ifndef INPUT_GRAD
#define INPUT_GRAD 0
#endif

typedef ELEMENT T;
typedef Wide<T> A;
struct __align__(V * sizeof(T)) Run { T at[V]; };

constexpr int CHANNELS = 8 * V, THREADS = 256, PIXELS = THREADS / 8;

// Blocks of 256 threads: x over runs of pixels, y over 8 × V channels.
extern "C" __global__ void __launch_bounds__(THREADS)
conv2d_depthwise(const T *__restrict__ images, const WEIGHT_ELEMENT *__restrict__ weight, const SCALE_ELEMENT *__restrict__ scale, const BIAS_ELEMENT *__restrict__ bias, T *__restrict__ out, const Geometry g, const int relu) {
    __shared__ A filters[R * S][CHANNELS];
    const int first = blockIdx.y * CHANNELS;
    for (int at = threadIdx.x; at < R * S * CHANNELS; at += THREADS) {
        const int c = first + at / (R * S);
        A value = c < g.c ? A(widen(weight[c * (R * S) + at % (R * S)])) : A(0);
        if (scale && c < g.c) value *= A(widen(scale[c]));
        filters[at % (R * S)][at / (R * S)] = value;
    }
    __syncthreads();
    const int local = threadIdx.x % 8 * V, c = first + local;
    if (c >= g.c) return;
    const int height = INPUT_GRAD ? g.p : g.h, width = INPUT_GRAD ? g.q : g.w;
    const int out_h = INPUT_GRAD ? g.h : g.p, out_w = INPUT_GRAD ? g.w : g.q;
    const u32 pixels = (u32)g.n * out_h * out_w;
    for (u32 pixel = blockIdx.x * PIXELS + threadIdx.x / 8; pixel < pixels; pixel += gridDim.x * PIXELS) {
        const int x = (int)(pixel % out_w), y = (int)(pixel / out_w % out_h);
        const T *const image = images + (i64)(pixel / out_w / out_h) * height * width * g.c + c;
        A sum[V];
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] = bias ? A(widen(bias[c + j])) : A(0);
#pragma unroll
        for (int r = 0; r < R; r++) {
#pragma unroll
            for (int s = 0; s < S; s++) {
#if INPUT_GRAD
                const int down = y + g.padding_h - r * g.dilation_h, right = x + g.padding_w - s * g.dilation_w;
                const int row = down / g.stride_h, column = right / g.stride_w;
                const bool meets = down >= 0 && right >= 0 && row * g.stride_h == down && column * g.stride_w == right;
#else
                const int row = y * g.stride_h - g.padding_h + r * g.dilation_h, column = x * g.stride_w - g.padding_w + s * g.dilation_w;
                const bool meets = true;
#endif
                if (!meets || (u32)row >= (u32)height || (u32)column >= (u32)width) continue;
                const Run run = *(const Run *)(image + ((i64)row * width + column) * g.c);
#pragma unroll
                for (int j = 0; j < V; j++) sum[j] += A(widen(run.at[j])) * filters[r * S + s][local + j];
            }
        }
        Run run;
#pragma unroll
        for (int j = 0; j < V; j++) run.at[j] = narrow<T>(relu && sum[j] < A(0) ? A(0) : sum[j]);
        *(Run *)(out + (i64)pixel * g.c + c) = run;
    }
}
