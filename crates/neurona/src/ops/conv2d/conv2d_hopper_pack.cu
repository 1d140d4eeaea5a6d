// Filters OIHW in the order and type that the copies of conv2d_hopper.cu and conv2d_hopper_slab.cu want them.
#include "prelude.cuh"

#ifndef ELEMENT
#define ELEMENT bf16
#endif
#ifndef WEIGHT_ELEMENT
#define WEIGHT_ELEMENT float
#endif
// [out][tap][in], for the forward pass. One thread for each pair of channels, input channels adjacent; any grid.
extern "C" __global__ void conv2d_hopper_pack(const WEIGHT_ELEMENT *filters, ELEMENT *packed, int out_channels, int in_channels, int taps) {
    for (i64 i = first_element(); i < (i64)out_channels * in_channels; i += element_stride()) {
        const WEIGHT_ELEMENT *from = filters + i * taps;
        ELEMENT *to = packed + i / in_channels * taps * in_channels + i % in_channels;
        for (int tap = 0; tap < taps; ++tap) to[(i64)tap * in_channels] = narrow<ELEMENT>(widen(from[tap]));
    }
}

// [in][tap][out], for the input gradient: the transpose of a matrix of out rows and in taps columns. Threads (32, 8), a block
// for every 32 rows (y) and 32 columns (x).
extern "C" __global__ void conv2d_hopper_transpose(const WEIGHT_ELEMENT *filters, ELEMENT *packed, int rows, int columns) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32, y = blockIdx.y * 32;
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        if (y + i < rows && x + (int)threadIdx.x < columns) tile[i][threadIdx.x] = widen(filters[(i64)(y + i) * columns + x + threadIdx.x]);
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.y; i < 32; i += 8)
        if (x + i < columns && y + (int)threadIdx.x < rows) packed[(i64)(x + i) * rows + y + threadIdx.x] = narrow<ELEMENT>(tile[threadIdx.x][i]);
}
