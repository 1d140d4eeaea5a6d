// Adds the parts of a filter's gradient in an order that never changes, and writes filters as users have them, [k, channel,
// r, s], and the bias.
//
// SUM, OUT_ELEMENT: types of the parts and of the gradients.
#include "prelude.cuh"

#ifndef SUM
#define SUM float
#endif
#ifndef OUT_ELEMENT
#define OUT_ELEMENT float
#endif

typedef OUT_ELEMENT Out;

// Few sums of many parts: 16 threads share each, so that enough reads are on their way at once.
#define SHARES 16

// Blocks of 32 × SHARES threads, a row of 32 sums each; the last blocks have the bias. `parts`: [count][elements] with
// elements in the order k, tap, channel; `bias_parts`: [count][k] or null.
extern "C" __global__ void __launch_bounds__(32 * SHARES)
conv2d_weight_grad_finish(const SUM *__restrict__ parts, const SUM *__restrict__ bias_parts, Out *__restrict__ out, Out *__restrict__ bias, const int k, const int channels, const int taps, const int count) {
    __shared__ SUM shares[SHARES][32];
    const i64 elements = (i64)k * taps * channels, blocks = (elements + 31) / 32;
    const bool weights = blockIdx.x < blocks;
    const i64 row = weights ? elements : k;
    const i64 at = (blockIdx.x - (weights ? 0 : blocks)) * 32 + threadIdx.x % 32;
    const SUM *const from = weights ? parts : bias_parts;
    const int share = threadIdx.x / 32;
    SUM sum = SUM(0);
    if (at < row)
#pragma unroll 8
        for (int part = share; part < count; part += SHARES) sum += from[part * row + at];
    shares[share][threadIdx.x % 32] = sum;
    __syncthreads();
    if (share > 0 || at >= row) return;
    for (int other = 1; other < SHARES; other++) sum += shares[other][threadIdx.x % 32];
    if (weights) {
        const i64 channel = at % channels, tap = at / channels % taps, filter = at / channels / taps;
        out[(filter * channels + channel) * taps + tap] = narrow<Out>(sum);
    } else {
        bias[at] = narrow<Out>(sum);
    }
}
