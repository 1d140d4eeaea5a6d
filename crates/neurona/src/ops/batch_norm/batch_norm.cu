// Batch normalisation of a matrix [rows, c]: of images with channels last every pixel is a row.
//
// A first kernel leaves what it finds in each run of rows in the workspace. The second joins the runs itself, every block
// for its own columns: that is cheaper than a launch while the runs are few. Where they are many a small kernel joins
// them first, into one. The second kernel goes through its rows backwards, so that it meets first what the first kernel
// has left in the cache.
#include "batch_norm.cuh"

// Whether something is added to what is normalised, before relu.
#ifndef ADDED
#define ADDED 0
#endif

// Counts the batch too: the next kernel may then read the number everywhere.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_moments(const T *__restrict__ x, W *__restrict__ partial, const i64 *batches, i64 *batches_after, i64 rows, i64 c, i64 run) {
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
    __shared__ W room[MOMENTS * COLUMN_THREADS / 2];
    W all[MOMENTS];
    join_runs(all, partial, runs, run, rows, c, room);
    if (threadIdx.y == 0 && strip_column() < c) write_moments(joined, all, 0, c);
}

// What is read of one row.
struct Found {
    Group<T> x;
#if ADDED
    Group<T> other;
#endif
};

// A walk over what is normalised.
__device__ __forceinline__ auto rows_of(const T *x, const T *other, i64 rows, i64 c, i64 run) {
    i64 column = strip_column();
    auto load = [=](i64 row) {
        Found found;
        found.x = load_group(x + row * c + column);
#if ADDED
        found.other = load_group(other + row * c + column);
#endif
        return found;
    };
    // Twice as much of each row where there are two operands.
    return Sweep<ADDED ? 2 : 4, decltype(load)>(Run(rows, run), column < c, true, load);
}

template <class Walk> __device__ __forceinline__ void normalise(Walk &walk, T *y, const Normal &normal, int relu, i64 c) {
    i64 column = strip_column();
    walk.each([&](i64 row, const Found &found) {
        W value[V];
        widen_all(value, found.x);
        for (int k = 0; k < V; k++) {
            W v = normal(value[k] - normal.mean[k], k);
#if ADDED
            v += wide_at(found.other, k);
#endif
            value[k] = relu && v < 0 ? 0 : v;
        }
        store_narrow(y + row * c + column, value);
    });
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_normalise(const T *__restrict__ x, const T *__restrict__ other, T *__restrict__ y, const W *__restrict__ partial, i64 runs, i64 partial_run,
                     Channels<P> channels, i64 rows, i64 c, i64 run, double eps, int relu) {
    __shared__ W room[MOMENTS * COLUMN_THREADS / 2];
    // The first rows are on their way while the runs are joined.
    auto walk = rows_of(x, other, rows, c, run);
    W all[MOMENTS];
    join_runs(all, partial, runs, partial_run, rows, c, room);
    if (strip_column() >= c) return;
    Normal normal;
    normal.take(all, channels, blockIdx.y + threadIdx.y == 0, rows, eps);
    normalise(walk, y, normal, relu, c);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_eval(const T *__restrict__ x, T *__restrict__ y, const P *running_mean, const P *running_variance, const P *weight,
                const P *bias, i64 rows, i64 c, i64 run, double eps, int relu) {
    i64 column = strip_column();
    if (column >= c) return;
    Normal normal;
    for (int k = 0; k < V; k++) {
        normal.mean[k] = widen(running_mean[column + k]);
        normal.scale[k] = 1 / sqrt(widen(running_variance[column + k]) + (W)eps) * (weight ? widen(weight[column + k]) : 1);
        normal.shift[k] = bias ? widen(bias[column + k]) : 0;
    }
    auto walk = rows_of(x, nullptr, rows, c, run);
    normalise(walk, y, normal, relu, c);
}

// A convolution's scale and bias that normalise as well. In double precision: a large mean over a small deviation must
// not cost digits twice.
extern "C" __global__ void batch_norm_fold(const P *mean, const P *variance, const P *weight, const P *offset, const P *bias,
                                           P *scale, P *shift, i64 c, double eps) {
    for (i64 i = first_element(); i < c; i += element_stride()) {
        double factor = (weight ? (double)widen(weight[i]) : 1) / sqrt((double)widen(variance[i]) + eps);
        double from = (bias ? (double)widen(bias[i]) : 0) - (double)widen(mean[i]);
        scale[i] = narrow<P>((Wide<P>)factor);
        shift[i] = narrow<P>((Wide<P>)((offset ? (double)widen(offset[i]) : 0) + from * factor));
    }
}
