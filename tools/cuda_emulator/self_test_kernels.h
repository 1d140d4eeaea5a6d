// Kernels of the self-test.
#pragma once

static const char *const kernel_source = R"cuda(
#include "ptx.cuh"
typedef long long i64;

template <class T> __device__ __forceinline__ T sum_of_block(T x) {
    __shared__ T room[32];
    for (int lanes = 16; lanes; lanes >>= 1) x += __shfl_down_sync(0xffffffffu, x, lanes);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    T total = 0;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) total += room[i];
    return total;
}

#define BOUND 256
extern "C" __global__ void __launch_bounds__(BOUND, 2) block_sum(const float *__restrict__ x, float *y, i64 n) {
    float sum = 0;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) sum += x[i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

extern "C" __global__ void scale(float *x, i64 n) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= SCALE;
}

extern "C" __global__ void warp(int *out) {
    int lane = threadIdx.x, x = lane * 10;
    out += lane * 8;
    out[0] = __shfl_xor_sync(~0u, x, 5);
    out[1] = __shfl_up_sync(~0u, x, 3);
    out[2] = __shfl_down_sync(~0u, x, 4);
    out[3] = __shfl_sync(~0u, x, 10, 8);
    out[4] = (int)__ballot_sync(~0u, lane % 2 == 0);
    out[5] = (int)sum_of_block((double)lane);
    out[6] = (int)__shfl_down_sync(~0u, (float)lane, 1, 8);
    out[7] = __syncthreads_count(lane > 24);
}

extern "C" __global__ void reverse(double *x, int n) {
    extern __shared__ __align__(128) unsigned char shared[];
    double *values = (double *)shared;
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = n > 8 ? 0 : x[i];
    __syncthreads();
    if (n <= 8) x[threadIdx.x] = values[n - 1 - threadIdx.x];
}

extern "C" __global__ void half(unsigned short *out) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    out[i] = float_to_f16(f16_to_float((unsigned short)i));
}

extern "C" __global__ void rounding(unsigned short *out) {
    out[0] = float_to_f16(1.00048828125f);      // halfway, down to even
    out[1] = float_to_f16(1.00146484375f);      // halfway, up to even
    out[2] = float_to_f16(65520.0f);            // halfway to what f16 has no number for
    out[3] = float_to_f16(65519.0f);
    out[4] = float_to_f16(4.5e-8f);             // nearer to the smallest than to zero
    out[5] = float_to_bf16(1.00390625f);        // halfway, down to even
}

extern "C" __global__ void matrices(float *out) {
    __shared__ unsigned short left[16][16], right[16][8];
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) left[i / 16][i % 16] = float_to_bf16((float)(i / 16 + 2 * (i % 16)));
    for (int i = lane; i < 128; i += 32) right[i / 8][i % 8] = float_to_bf16((float)(i / 8 - 3 * (i % 8)));
    __syncwarp();
    unsigned a[4], b[2];
    emulator::load_matrices<4, false>(a, &left[lane % 16][lane / 16 * 8], "ldmatrix");
    emulator::load_matrices<2, true>(b, &right[lane % 16][0], "ldmatrix");
    float sums[4] = {100, 100, 100, 100};
    emulator::multiply_matrices<emulator::WidenBf16>(sums, a, b, "mma");
    for (int i = 0; i < 4; ++i) out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

extern "C" __global__ void half_at_barrier() {
    if (threadIdx.x < 16) __syncthreads();
}
extern "C" __global__ void half_in_shuffle() {
    if (threadIdx.x < 16) __shfl_xor_sync(0xffffffffu, 1, 1);
    else __syncthreads();
}
extern "C" __global__ void wrong_mask() { __syncwarp(1); }
extern "C" __global__ void write(double *x, int at) { x[at] = 1; }
extern "C" __global__ void index(double *x, int at) {
    __shared__ float room[33];
    room[at] = 1;
    x[0] = room[0];
}
__device__ __noinline__ double descend(volatile double *x, int depth) {
    volatile double room[8];
    room[0] = depth;
    return depth ? descend(x, depth - 1) + room[0] : x[0];
}
extern "C" __global__ void deep(double *x, int depth) { x[0] = descend(x, depth); }
)cuda";
