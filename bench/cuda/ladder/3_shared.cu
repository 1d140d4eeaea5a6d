// Rung 3, tiles in shared memory: a block brings a tile of A and one of B once, and all its threads use them.
//
// Each element is now read from memory once for 32 results instead of once for each. What is left is two reads of shared
// memory for every multiplication, and shared memory serves one warp at a time.
#include "operands.cuh"

constexpr int TILE = 32;

extern "C" __global__ void __launch_bounds__(TILE * TILE) product(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, const Sizes size) {
    __shared__ float lefts[TILE][TILE], rights[TILE][TILE];
    const int down = threadIdx.x / TILE, across = threadIdx.x % TILE;
    const int row = blockIdx.x * TILE + down, column = blockIdx.y * TILE + across;
    float sum = 0;
    for (int start = 0; start < size.k; start += TILE) {
        lefts[down][across] = value(left(a, size, row, start + across));
        rights[down][across] = value(right(b, size, start + down, column));
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < TILE; depth++) sum += lefts[down][depth] * rights[depth][across];
        // Nobody may overwrite a tile that somebody still reads.
        __syncthreads();
    }
    if (row < size.m && column < size.n) c[(i64)row * size.n + column] = narrow<T>(sum);
}
