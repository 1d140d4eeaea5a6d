// The gradients by filters and bias where each channel has a filter of its own (groups = channels). A thread has one channel
// and all its taps, and goes through every few pixels of its part; neighbours have neighbouring channels.
//
// ELEMENT: type of the images. R, S: taps.
#include "conv2d.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef R
#define R 3
#define S 3
#endif

typedef ELEMENT T;
typedef Wide<T> A;

constexpr int LANES = 32, SHARES = 8;

// Blocks of 32 × 8 threads: x over parts of `part` pixels, y over 32 channels. `parts`: [part][channel][tap]; `bias_parts`:
// [part][channel] or null.
extern "C" __global__ void __launch_bounds__(LANES * SHARES)
conv2d_depthwise_weight_grad(const T *__restrict__ images, const T *__restrict__ dy, A *__restrict__ parts, A *__restrict__ bias_parts, const Geometry g, const int part) {
    __shared__ A shares[SHARES][LANES];
    const int lane = threadIdx.x % LANES, share = threadIdx.x / LANES, c = blockIdx.y * LANES + lane;
    const u32 pixels = (u32)g.n * g.p * g.q, begin = blockIdx.x * (u32)part, end = min(pixels, begin + part);
    A sum[R * S], bias = A(0);
#pragma unroll
    for (int tap = 0; tap < R * S; tap++) sum[tap] = A(0);
    if (c < g.c)
        for (u32 pixel = begin + share; pixel < end; pixel += SHARES) {
            const int top = (int)(pixel / g.q % g.p) * g.stride_h - g.padding_h, left = (int)(pixel % g.q) * g.stride_w - g.padding_w;
            const T *const image = images + (i64)(pixel / g.q / g.p) * g.h * g.w * g.c + c;
            const A by = A(widen(dy[(i64)pixel * g.k + c]));
            bias += by;
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int s = 0; s < S; s++) {
                    const int row = top + r * g.dilation_h, column = left + s * g.dilation_w;
                    if ((u32)row < (u32)g.h && (u32)column < (u32)g.w) sum[r * S + s] += by * A(widen(image[((i64)row * g.w + column) * g.c]));
                }
        }
    // Shares are added in their order.
#pragma unroll
    for (int tap = 0; tap <= R * S; tap++) {
        shares[share][lane] = tap < R * S ? sum[tap < R * S ? tap : 0] : bias;
        __syncthreads();
        if (share == 0 && c < g.c) {
            A total = A(0);
            for (int i = 0; i < SHARES; i++) total += shares[i][lane];
            if (tap < R * S) parts[((i64)blockIdx.x * g.c + c) * (R * S) + tap] = total;
            else if (bias_parts) bias_parts[(i64)blockIdx.x * g.c + c] = total;
        }
        __syncthreads();
    }
}
