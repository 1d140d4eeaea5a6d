// Copies whose fastest dimension differs on both sides, by squares that turn in shared memory: both sides are then
// accessed in whole lines.
#include "moved.cuh"

// Dimensions besides the two that change places.
#ifndef RANK
#define RANK 1
#endif
#ifndef INDEX
#define INDEX u32
#endif

#define SIDE 32
#define ROWS 8

typedef INDEX I;

// Rows are neighbours in x, columns in y.
struct Turn {
    Divisor<I> across, down;
    I rows, columns, column_from, row_to;
#if RANK > 0
    Divisor<I> sizes[RANK];
    I from[RANK], to[RANK];
#endif
};

extern "C" __global__ void __launch_bounds__(SIDE *ROWS) transpose(const E *__restrict__ x, R *__restrict__ y, Turn turn) {
    // One more column: the elements of a column then lie in different banks.
    __shared__ E square[SIDE][SIDE + 1];
    I rest = (I)blockIdx.x, from = 0, to = 0;
    I column = digit(rest, turn.across) * SIDE;
    I row = digit(rest, turn.down) * SIDE;
#if RANK > 0
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        I at = d > 0 ? digit(rest, turn.sizes[d]) : rest;
        from += at * turn.from[d];
        to += at * turn.to[d];
    }
#endif
    int lane = threadIdx.x;
#pragma unroll
    for (int u = 0; u < SIDE / ROWS; u++) {
        int k = threadIdx.y + u * ROWS;
        bool inside = row + lane < turn.rows && column + k < turn.columns;
        if (inside) square[k][lane] = x[from + row + lane + (column + k) * turn.column_from];
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < SIDE / ROWS; u++) {
        int k = threadIdx.y + u * ROWS;
        bool inside = row + k < turn.rows && column + lane < turn.columns;
        if (inside) y[to + (row + k) * turn.row_to + column + lane] = moved(square[lane][k]);
    }
}
