// The gradients by the filters and the bias from Winograd's products (see winograd.cuh): sums over tiles in parts.
//
// PIXELS: pixels of a side of a tile.
#include "winograd.cuh"

#ifndef PIXELS
#define PIXELS 4
#endif

typedef Side<PIXELS> S;
#define SIDE S::SIZE
#define POINTS (SIDE * SIDE)

// Threads that share 32 sums: of many parts, of few channels.
#define SHARES 16

// Adds the sums [tile][pitch] of tiles of the gradient by the output. Blocks: x over 32 channels, y over runs of `run` tiles;
// `sums`: [run][pitch].
extern "C" __global__ void __launch_bounds__(32 * SHARES)
conv2d_winograd_bias(const float *__restrict__ of_tiles, float *__restrict__ sums, const int tiles, const int pitch, const int run) {
    __shared__ float shares[SHARES][32];
    const int channel = blockIdx.x * 32 + threadIdx.x % 32, share = threadIdx.x / 32;
    const int end = min(tiles, (int)(blockIdx.y + 1) * run);
    float sum = 0.0f;
    if (channel < pitch)
#pragma unroll 4
        for (int tile = blockIdx.y * run + share; tile < end; tile += SHARES) sum += of_tiles[(i64)tile * pitch + channel];
    shares[share][threadIdx.x % 32] = sum;
    __syncthreads();
    if (share > 0 || channel >= pitch) return;
    for (int other = 1; other < SHARES; other++) sum += shares[other][threadIdx.x % 32];
    sums[(i64)blockIdx.y * pitch + channel] = sum;
}

// Adds the parts in their order and writes filters as users have them, [k, c, 3, 3]. Blocks of 32 × SHARES threads, 32 pairs
// of channels each; the last blocks have the bias. `parts`: [count][point][k][pitch_c] with `rows` filters, of which k are
// real; `bias_parts`: [bias_count][rows] or null.
extern "C" __global__ void __launch_bounds__(32 * SHARES)
conv2d_winograd_weight_grad(const float *__restrict__ parts, const float *__restrict__ bias_parts, float *__restrict__ out, float *__restrict__ bias, const int k, const int c, const int rows, const int pitch_c, const int count, const int bias_count) {
    __shared__ float sums[POINTS][32];
    const i64 pairs = (i64)rows * pitch_c, blocks = (pairs + 31) / 32;
    const bool weights = blockIdx.x < blocks;
    const int lane = threadIdx.x % 32, share = threadIdx.x / 32;
    const i64 at = (blockIdx.x - (weights ? 0 : blocks)) * 32 + lane;
    if (weights) {
        for (int point = share; point < POINTS; point += SHARES) {
            float sum = 0.0f;
            if (at < pairs)
#pragma unroll 4
                for (int part = 0; part < count; part++) sum += parts[((i64)part * POINTS + point) * pairs + at];
            sums[point][lane] = sum;
        }
    } else {
        float sum = 0.0f;
        if (at < k)
#pragma unroll 4
            for (int part = share; part < bias_count; part += SHARES) sum += bias_parts[(i64)part * rows + at];
        sums[share][lane] = sum;
    }
    __syncthreads();
    if (share > 0) return;
    if (!weights) {
        float sum = 0.0f;
        for (int other = 0; other < SHARES; other++) sum += sums[other][lane];
        if (at < k) bias[at] = sum;
        return;
    }
    const i64 filter = at / pitch_c, channel = at % pitch_c;
    if (filter >= k || channel >= c) return;
    float *const to = out + (filter * c + channel) * 9;
    transform<SIDE, 3, float>([&](int row, int column) { return sums[row * SIDE + column][lane]; },
                              [](const float(&points)[SIDE], float(&taps)[3]) { S::taps(points, taps); },
                              [&](int row, int column, float value) { to[row * 3 + column] = value; });
}
