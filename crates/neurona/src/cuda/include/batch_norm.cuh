// What batch normalisation finds out about each column of a matrix [rows, c]: moments in training, and the two sums that
// gradients need. Every run of rows leaves its part in the workspace, as [runs, 2, c], and parts are joined in a fixed order.
#pragma once
#include "columns.cuh"

// Of x, y and their gradients.
#ifndef ELEMENT
#define ELEMENT float
#endif
// Of everything that is there once a channel; wider than ELEMENT in mixed precision.
#ifndef PARAMETER
#define PARAMETER ELEMENT
#endif
#ifndef MOMENTUM
#define MOMENTUM ELEMENT
#endif

typedef ELEMENT T;
typedef PARAMETER P;
typedef Wide<T> W;

// ---- Moments: mean and sum of squared deviations.

// V means, V sums of squared deviations, and the number of rows they are of.
#define MOMENTS (2 * V + 1)

// Deviations are never taken as a difference of large sums: nothing is lost far from zero.
__device__ __forceinline__ void join_moments(W (&a)[MOMENTS], const W (&b)[MOMENTS]) {
    W count = a[2 * V] + b[2 * V];
    W share = count > 0 ? b[2 * V] / count : 0;
    for (int k = 0; k < V; k++) {
        W apart = b[k] - a[k];
        a[k] += apart * share;
        a[V + k] += b[V + k] + apart * apart * (a[2 * V] * share);
    }
    a[2 * V] = count;
}

// The moments of all runs for this thread's columns, in every thread.
__device__ __forceinline__ void join_runs(W (&all)[MOMENTS], const W *partial, i64 runs, i64 run, i64 rows, i64 c, W *room) {
    i64 column = strip_column();
    for (int k = 0; k < MOMENTS; k++) all[k] = 0;
    if (column < c)
#pragma unroll 1
        for (i64 i = runs > 1 ? threadIdx.y : 0; i < runs; i += blockDim.y) {
            Group<W> mean = load_group(partial + 2 * i * c + column), square = load_group(partial + (2 * i + 1) * c + column);
            W one[MOMENTS];
            for (int k = 0; k < V; k++) one[k] = mean.at[k], one[V + k] = square.at[k];
            one[2 * V] = (W)((i + 1) * run < rows ? run : rows - i * run);
            join_moments(all, one);
        }
    if (runs > 1) {
        join_columns(all, room, join_moments);
        share_columns(all, room);
    }
}

__device__ __forceinline__ void write_moments(W *partial, const W (&all)[MOMENTS], i64 at, i64 c) {
    Group<W> mean, square;
    for (int k = 0; k < V; k++) mean.at[k] = all[k], square.at[k] = all[V + k];
    store_group(partial + 2 * at * c + strip_column(), mean);
    store_group(partial + (2 * at + 1) * c + strip_column(), square);
}

// A moving average's next value.
__device__ __forceinline__ P moved(P old, W momentum, W now) { return narrow<P>(widen(old) + momentum * (now - widen(old))); }

// What there is once a channel, S being the type in which a gradient gets the batch's mean and inverse deviation. Weight
// and bias are null where there are none, what was before where nothing is kept, and the momentum where all batches count
// alike. Before and after may be the same memory.
template <class S> struct Channels {
    const P *weight, *bias;
    S *mean, *inverse;
    const P *mean_before, *variance_before;
    P *mean_after, *variance_after;
    const i64 *batches_after;
    const MOMENTUM *momentum;
};

// How columns are normalised.
struct Normal {
    W mean[V], scale[V], shift[V];

    // From the moments of all rows, which `first` writes down: one thread a column.
    template <class S>
    __device__ __forceinline__ void take(const W (&all)[MOMENTS], const Channels<S> &of, bool first, i64 rows, double eps) {
        i64 column = strip_column();
        for (int k = 0; k < V; k++) {
            W inverse = 1 / sqrt(all[V + k] / (W)(rows > 0 ? rows : 1) + (W)eps);
            mean[k] = all[k];
            scale[k] = of.weight ? inverse * widen(of.weight[column + k]) : inverse;
            shift[k] = of.bias ? widen(of.bias[column + k]) : 0;
            if (!first) continue;
            of.mean[column + k] = narrow<S>(mean[k]);
            of.inverse[column + k] = narrow<S>(inverse);
            if (of.mean_before) {
                // A batch of nothing moves nothing.
                W part = rows == 0 ? 0 : of.momentum ? (W)widen(*of.momentum) : 1 / (W)*of.batches_after;
                of.mean_after[column + k] = moved(of.mean_before[column + k], part, mean[k]);
                W variance = rows > 1 ? all[V + k] / (W)(rows - 1) : 0;
                of.variance_after[column + k] = moved(of.variance_before[column + k], part, variance);
            }
        }
    }

    // Of what is apart from the mean by this. The mean is taken off first: within the shift it would cancel badly where it
    // is much larger than the deviation.
    __device__ __forceinline__ W operator()(W apart, int k) const { return merged(apart, scale[k], shift[k]); }
};

// ---- Sums of gradients, and of gradients times deviations.

__device__ __forceinline__ void add_sums(W (&a)[2 * V], const W (&b)[2 * V]) {
    for (int k = 0; k < 2 * V; k++) a[k] += b[k];
}

// The sums of all runs ([runs, 2, c] in the workspace) for this thread's columns, in every thread.
__device__ __forceinline__ void join_runs(W (&all)[2 * V], const W *partial, i64 runs, i64 c, W *room) {
    i64 column = strip_column();
    for (int k = 0; k < 2 * V; k++) all[k] = 0;
    if (column < c)
#pragma unroll 1
        for (i64 i = runs > 1 ? threadIdx.y : 0; i < runs; i += blockDim.y) {
            Group<W> even = load_group(partial + 2 * i * c + column), along = load_group(partial + (2 * i + 1) * c + column);
            for (int k = 0; k < V; k++) all[k] += even.at[k], all[V + k] += along.at[k];
        }
    if (runs > 1) {
        join_columns(all, room, add_sums);
        share_columns(all, room);
    }
}

__device__ __forceinline__ void write_sums(W *partial, const W (&all)[2 * V], i64 at, i64 c) {
    Group<W> even, along;
    for (int k = 0; k < V; k++) even.at[k] = all[k], along.at[k] = all[V + k];
    store_group(partial + 2 * at * c + strip_column(), even);
    store_group(partial + (2 * at + 1) * c + strip_column(), along);
}
