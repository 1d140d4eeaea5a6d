// Batch normalisation of a matrix [rows, c]: of images with channels last every pixel is a row.
//
// A first kernel leaves what it finds in each run of rows in the workspace. The second joins the runs itself, every block
// for its own columns: that is cheaper than a launch while the runs are few. Where they are many a small kernel joins
// them first, into one. The second kernel goes through its rows backwards, so that it meets first what the first kernel
// has left in the cache.
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

// ---- Statistics: mean and sum of squared deviations, as [runs, 2, c] in the workspace.

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

// Counts the batch too: the next kernel may then read the number everywhere.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_moments(const T *__restrict__ x, W *__restrict__ partial, const i64 *batches, i64 *batches_after, i64 rows, i64 c, i64 run) {
    take_turn();
    __shared__ W room[MOMENTS * COLUMN_THREADS / 2];
    if (batches && blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) *batches_after = *batches + 1;
    i64 column = strip_column();
    Run own(rows, run);
    // Each thread measures from its own first row. That row is one of its few, so however far off it is, squares
    // measured from it are no more than so many times the squares of the true deviations.
    W shift[V] = {}, sum[V] = {}, square[V] = {};
    i64 first = own.first + threadIdx.y;
    bool some = column < c && first < own.end;
    if (some) load_wide(shift, x + first * c + column);
    auto load = [&](i64 row) { return load_group(x + row * c + column); };
    auto add = [&](i64, const Group<T> &found) {
        W value[V];
        widen_all(value, found);
        for (int k = 0; k < V; k++) {
            W apart = value[k] - shift[k];
            sum[k] += apart;
            square[k] += apart * apart;
        }
    };
    if (some) each_row<4>(own, false, load, add);
    W count = some ? (W)((own.end - first + blockDim.y - 1) / blockDim.y) : 0;
    W all[MOMENTS];
    all[2 * V] = count;
    for (int k = 0; k < V; k++) {
        W off = some ? sum[k] / count : 0;
        W left = square[k] - sum[k] * off;
        all[k] = shift[k] + off;
        all[V + k] = left < 0 ? 0 : left;
    }
    join_columns(all, room, join_moments);
    if (threadIdx.y == 0 && column < c) write_moments(partial, all, blockIdx.y, c);
}

// Joins all runs into one at `joined`.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_join_moments(const W *__restrict__ partial, W *__restrict__ joined, i64 runs, i64 run, i64 rows, i64 c) {
    take_turn();
    __shared__ W room[MOMENTS * COLUMN_THREADS / 2];
    W all[MOMENTS];
    join_runs(all, partial, runs, run, rows, c, room);
    if (threadIdx.y == 0 && strip_column() < c) write_moments(joined, all, 0, c);
}

// A moving average's next value.
__device__ __forceinline__ P moved(P old, W momentum, W now) { return narrow<P>(widen(old) + momentum * (now - widen(old))); }

// y = (x - mean) * scale + shift over this block's rows. The mean is taken off first: within the shift it would cancel
// badly where it is much larger than the deviation.
__device__ __forceinline__ void scale_rows(const T *x, T *y, const W (&mean)[V], const W (&scale)[V], const W (&shift)[V], int relu, i64 rows, i64 c, i64 run) {
    i64 column = strip_column();
    Run own(rows, run);
    if (column >= c) return;
    auto load = [&](i64 row) { return load_group(x + row * c + column); };
    each_row<4>(own, true, load, [&](i64 row, const Group<T> &found) {
        W value[V];
        widen_all(value, found);
        for (int k = 0; k < V; k++) {
            W v = (value[k] - mean[k]) * scale[k] + shift[k];
            value[k] = relu && v < 0 ? 0 : v;
        }
        store_narrow(y + row * c + column, value);
    });
}

// Weight and bias are null where there are none, old running statistics where none are kept, and the momentum where all
// batches count alike. Old and new running statistics may be the same memory.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_normalise(const T *__restrict__ x, T *__restrict__ y, const W *__restrict__ partial, i64 runs, i64 partial_run,
                     const P *weight, const P *bias, P *mean_out, P *inverse_out, const P *mean_old, const P *variance_old,
                     P *mean_new, P *variance_new, const i64 *batches_after, const MOMENTUM *momentum,
                     i64 rows, i64 c, i64 run, double eps, int relu) {
    take_turn();
    __shared__ W room[MOMENTS * COLUMN_THREADS / 2];
    W all[MOMENTS], mean[V], scale[V], shift[V];
    join_runs(all, partial, runs, partial_run, rows, c, room);
    i64 column = strip_column();
    if (column >= c) return;
    for (int k = 0; k < V; k++) {
        W inverse = 1 / sqrt(all[V + k] / (W)(rows > 0 ? rows : 1) + (W)eps);
        mean[k] = all[k];
        scale[k] = weight ? inverse * widen(weight[column + k]) : inverse;
        shift[k] = bias ? widen(bias[column + k]) : 0;
        if (blockIdx.y > 0 || threadIdx.y > 0) continue;
        mean_out[column + k] = narrow<P>(mean[k]);
        inverse_out[column + k] = narrow<P>(inverse);
        if (mean_old) {
            // A batch of nothing moves nothing.
            W part = rows == 0 ? 0 : momentum ? (W)widen(*momentum) : 1 / (W)*batches_after;
            mean_new[column + k] = moved(mean_old[column + k], part, mean[k]);
            variance_new[column + k] = moved(variance_old[column + k], part, rows > 1 ? all[V + k] / (W)(rows - 1) : 0);
        }
    }
    scale_rows(x, y, mean, scale, shift, relu, rows, c, run);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_eval(const T *__restrict__ x, T *__restrict__ y, const P *running_mean, const P *running_variance, const P *weight,
                const P *bias, i64 rows, i64 c, i64 run, double eps, int relu) {
    take_turn();
    W mean[V], scale[V], shift[V];
    i64 column = strip_column();
    if (column >= c) return;
    for (int k = 0; k < V; k++) {
        mean[k] = widen(running_mean[column + k]);
        scale[k] = 1 / sqrt(widen(running_variance[column + k]) + (W)eps) * (weight ? widen(weight[column + k]) : 1);
        shift[k] = bias ? widen(bias[column + k]) : 0;
    }
    scale_rows(x, y, mean, scale, shift, relu, rows, c, run);
}

// A convolution's scale and bias that normalise as well. In double precision: a large mean over a small deviation must
// not cost digits twice.
extern "C" __global__ void batch_norm_fold(const P *mean, const P *variance, const P *weight, const P *offset, const P *bias,
                                           P *scale, P *shift, i64 c, double eps) {
    take_turn();
    for (i64 i = first_element(); i < c; i += element_stride()) {
        double factor = (weight ? (double)widen(weight[i]) : 1) / sqrt((double)widen(variance[i]) + eps);
        double from = (bias ? (double)widen(bias[i]) : 0) - (double)widen(mean[i]);
        scale[i] = narrow<P>((Wide<P>)factor);
        shift[i] = narrow<P>((Wide<P>)((offset ? (double)widen(offset[i]) : 0) + from * factor));
    }
}
