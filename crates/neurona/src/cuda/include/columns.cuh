// Matrices [rows, c] stored by rows, in which every column is treated alike. A block takes a strip of columns and a
// run of rows: thread (x, y) has V neighbouring columns and every blockDim.y-th row, so that a warp reads whole lines.
#pragma once
#include "prelude.cuh"
#include "group.cuh"

// Threads of a block at most: two such blocks fill a multiprocessor's registers with 80 a thread.
#define COLUMN_THREADS 384

// The first of this thread's V columns; there are none when it is c or more.
__device__ __forceinline__ i64 strip_column() { return ((i64)blockIdx.x * blockDim.x + threadIdx.x) * V; }

// The rows of this block, given how many rows a run has.
struct Run {
    i64 first, end;
    __device__ __forceinline__ Run(i64 rows, i64 run) {
        first = blockIdx.y * run;
        end = first + run < rows ? first + run : rows;
    }
};

// Calls use(row, load(row)) for this thread's rows. Several loads are under way before the first is used: memory answers
// late, and a multiprocessor must ask for tens of kilobytes to keep it busy. `back` starts from the last row.
template <int AHEAD, class Load, class Use>
__device__ __forceinline__ void each_row(const Run &own, bool back, Load load, Use use) {
    i64 row = own.first + threadIdx.y, step = blockDim.y, last = own.first + own.end - 1;
    auto place = [&](i64 row) { return back ? last - row : row; };
#pragma unroll 1
    for (; row + (AHEAD - 1) * step < own.end; row += AHEAD * step) {
        decltype(load(row)) found[AHEAD];
        for (int k = 0; k < AHEAD; k++) found[k] = load(place(row + k * step));
        for (int k = 0; k < AHEAD; k++) use(place(row + k * step), found[k]);
    }
#pragma unroll 1
    for (; row < own.end; row += step) use(place(row), load(place(row)));
}

// Joins the K values of all threads that have the same columns, in a tree of fixed shape; the result is that of the
// threads with y = 0. Values lie apart by the block's threads in `room`, which keeps shared memory free of conflicts.
template <int K, class A, class Join> __device__ __forceinline__ void join_columns(A (&mine)[K], A *room, Join join) {
    int pitch = COLUMN_THREADS / 2;
#pragma unroll 1
    for (int n = blockDim.y; n > 1;) {
        int half = (n + 1) / 2, y = threadIdx.y;
        if (y >= half && y < n)
            for (int k = 0; k < K; k++) room[k * pitch + (y - half) * blockDim.x + threadIdx.x] = mine[k];
        __syncthreads();
        if (y < n - half) {
            A other[K];
            for (int k = 0; k < K; k++) other[k] = room[k * pitch + y * blockDim.x + threadIdx.x];
            join(mine, other);
        }
        __syncthreads();
        n = half;
    }
}

// Hands the values of the threads with y = 0 to all that have the same columns.
template <int K, class A> __device__ __forceinline__ void share_columns(A (&mine)[K], A *room) {
    int pitch = COLUMN_THREADS / 2;
    if (threadIdx.y == 0)
        for (int k = 0; k < K; k++) room[k * pitch + threadIdx.x] = mine[k];
    __syncthreads();
    for (int k = 0; k < K; k++) mine[k] = room[k * pitch + threadIdx.x];
    __syncthreads();
}
