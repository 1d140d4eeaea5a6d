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

// A walk over this thread's rows. Several loads are under way before the first is used: memory answers late, and a
// multiprocessor must ask for tens of kilobytes to keep it busy. The first ones are on their way as soon as it is made, so
// that other work may come between. `back` starts from the last row.
template <int AHEAD, class Load> struct Sweep {
    Load load;
    i64 row, step, first, end;
    bool back;
    decltype(load(0)) found[AHEAD];

    __device__ __forceinline__ Sweep(const Run &own, bool some, bool back, Load load)
        : load(load), row(own.first + threadIdx.y), step(blockDim.y), first(own.first), end(some ? own.end : own.first), back(back) {
        if (group()) ask();
    }

    // Calls use(row, load(row)) for each.
    template <class Use> __device__ __forceinline__ void each(Use use) {
#pragma unroll 1
        while (group()) {
            for (int k = 0; k < AHEAD; k++) use(place(row + k * step), found[k]);
            row += AHEAD * step;
            if (group()) ask();
        }
#pragma unroll 1
        for (; row < end; row += step) use(place(row), load(place(row)));
    }

  private:
    __device__ __forceinline__ bool group() const { return row + (AHEAD - 1) * step < end; }
    __device__ __forceinline__ i64 place(i64 row) const { return back ? first + end - 1 - row : row; }
    __device__ __forceinline__ void ask() {
        for (int k = 0; k < AHEAD; k++) found[k] = load(place(row + k * step));
    }
};

// Calls use(row, load(row)) for this thread's rows.
template <int AHEAD, class Load, class Use>
__device__ __forceinline__ void each_row(const Run &own, bool back, Load load, Use use) {
    Sweep<AHEAD, Load>(own, true, back, load).each(use);
}

// Joins the values of the lanes of a warp that have the same columns, in all of them.
template <int K, class A, class Join> __device__ __forceinline__ void join_lanes(A (&mine)[K], int across, Join join) {
#pragma unroll 1
    for (int lane = 16; lane >= across; lane >>= 1) {
        A other[K];
        for (int k = 0; k < K; k++) other[k] = __shfl_xor_sync(FULL_WARP, mine[k], lane);
        join(mine, other);
    }
}

// Joins the K values of all threads that have the same columns, in a tree of fixed shape; the result is that of the
// threads with y = 0. Where columns divide a warp its rows are joined by exchange between lanes, and again what the
// warps have left, by the first: one wait for the whole block instead of one for each level of the tree. Values lie apart
// by the block's threads in `room`, which keeps shared memory free of conflicts.
template <int K, class A, class Join> __device__ __forceinline__ void join_columns(A (&mine)[K], A *room, Join join) {
    int pitch = COLUMN_THREADS / 2, across = blockDim.x, n = blockDim.y, y = threadIdx.y;
    if (across < 32 && 32 % across == 0 && across * n % 32 == 0) {
        int warps = across * n / 32, warp = (y * across + threadIdx.x) / 32;
        join_lanes(mine, across, join);
        if (y % (32 / across) == 0)
            for (int k = 0; k < K; k++) room[k * pitch + warp * across + threadIdx.x] = mine[k];
        __syncthreads();
        if (warp == 0) {
            bool some = y < warps;
            A other[K];
            for (int k = 0; k < K; k++) mine[k] = some ? room[k * pitch + y * across + threadIdx.x] : A(0);
#pragma unroll 1
            for (int i = y + 32 / across; i < warps; i += 32 / across) {
                for (int k = 0; k < K; k++) other[k] = room[k * pitch + i * across + threadIdx.x];
                join(mine, other);
            }
            join_lanes(mine, across, join);
        }
        __syncthreads();
        return;
    }
#pragma unroll 1
    while (n > 1) {
        int half = (n + 1) / 2;
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
