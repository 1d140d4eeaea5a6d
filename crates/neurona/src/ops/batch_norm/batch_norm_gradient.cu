// The gradients of batch normalisation over a matrix [rows, c]; see batch_norm.cu for how the work is cut.
//
// Both need two sums of each column: of dy, and of dy times the deviation of x. Where a relu was computed along, dy counts
// only where its result is above 0.
#include "batch_norm.cuh"

// What a relu let pass: 0 there was none, 1 y tells, 2 it is computed again from x, which has to be read anyway: then y
// need not be read, and need not even be kept.
#ifndef MASK
#define MASK 0
#endif

// What is read of one row.
struct Found {
    Group<T> dy, x;
#if MASK == 1
    Group<T> y;
#endif
};

__device__ __forceinline__ Found find(const T *dy, const T *x, const T *y, i64 at) {
    Found found;
    found.dy = load_group(dy + at);
    if (x) found.x = load_group(x + at);
#if MASK == 1
    found.y = load_group(y + at);
#endif
    return found;
}

// The gradient that passes relu, and the deviation of x from the mean.
__device__ __forceinline__ void gradient_of(W (&slope)[V], W (&value)[V], const Found &found, const W (&mean)[V],
                                            const W (&scale)[V], const W (&shift)[V]) {
    widen_all(slope, found.dy);
    widen_all(value, found.x);
    for (int k = 0; k < V; k++) {
        value[k] -= mean[k];
#if MASK == 1
        if (widen(found.y.at[k]) <= 0) slope[k] = 0;
#elif MASK == 2
        if (merged(value[k], scale[k], shift[k]) <= 0) slope[k] = 0;
#endif
    }
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_gradient_sums(const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ y, const P *__restrict__ mean_of,
                         const P *__restrict__ inverse_of, const P *__restrict__ weight, const P *__restrict__ bias,
                         W *__restrict__ partial, i64 rows, i64 c, i64 run) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    i64 column = strip_column();
    Run own(rows, run);
    W all[2 * V] = {}, mean[V], scale[V] = {}, shift[V] = {};
    if (column < c) {
        for (int k = 0; k < V; k++) {
            mean[k] = widen(mean_of[column + k]);
#if MASK == 2
            scale[k] = widen(inverse_of[column + k]) * widen(weight[column + k]);
            shift[k] = widen(bias[column + k]);
#endif
        }
        auto load = [&](i64 row) { return find(dy, x, y, row * c + column); };
        each_row<2>(own, false, load, [&](i64, const Found &found) {
            W slope[V], value[V];
            gradient_of(slope, value, found, mean, scale, shift);
            for (int k = 0; k < V; k++) {
                all[k] += slope[k];
                all[V + k] += slope[k] * value[k];
            }
        });
    }
    join_columns(all, room, add_sums);
    if (threadIdx.y == 0 && column < c) write_sums(partial, all, blockIdx.y, c);
}

// Joins all runs into one at `joined`.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_gradient_join(const W *__restrict__ partial, W *__restrict__ joined, i64 runs, i64 c) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    W all[2 * V];
    join_runs(all, partial, runs, c, room);
    if (threadIdx.y == 0 && strip_column() < c) write_sums(joined, all, 0, c);
}

// Of training. Weight and its gradients are null where there is none.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_gradient(const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ y, const P *__restrict__ mean_of,
                    const P *__restrict__ inverse_of, const P *__restrict__ weight, const P *__restrict__ bias,
                    const W *__restrict__ partial, i64 runs, T *__restrict__ dx, P *dweight, P *dbias, i64 rows, i64 c, i64 run) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    W all[2 * V], mean[V], average[V], tilt[V], scale[V], shift[V] = {};
    i64 column = strip_column();
    // The first rows are on their way while the runs are joined.
    auto load = [=](i64 row) { return find(dy, x, y, row * c + column); };
    Sweep<2, decltype(load)> walk(Run(rows, run), column < c, true, load);
    join_runs(all, partial, runs, c, room);
    if (column >= c) return;
    for (int k = 0; k < V; k++) {
        W inverse = widen(inverse_of[column + k]);
        mean[k] = widen(mean_of[column + k]);
        average[k] = all[k] / (W)rows;
        tilt[k] = all[V + k] * inverse * inverse / (W)rows;
        scale[k] = weight ? inverse * widen(weight[column + k]) : inverse;
#if MASK == 2
        shift[k] = widen(bias[column + k]);
#endif
        if (dweight && blockIdx.y + threadIdx.y == 0) {
            dweight[column + k] = narrow<P>(all[V + k] * inverse);
            dbias[column + k] = narrow<P>(all[k]);
        }
    }
    walk.each([&](i64 row, const Found &found) {
        W slope[V], value[V];
        gradient_of(slope, value, found, mean, scale, shift);
        for (int k = 0; k < V; k++) value[k] = (slope[k] - average[k] - value[k] * tilt[k]) * scale[k];
        store_narrow(dx + row * c + column, value);
    });
}

// Of normalisation by given statistics: dx, and where there is a weight the sums of the runs.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_eval_gradient(const T *__restrict__ dy, const T *__restrict__ x, const P *__restrict__ mean_of,
                         const P *__restrict__ variance_of, const P *__restrict__ weight, T *__restrict__ dx,
                         W *__restrict__ partial, i64 rows, i64 c, i64 run, double eps) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    i64 column = strip_column();
    Run own(rows, run);
    W all[2 * V] = {}, mean[V], scale[V];
    if (column < c) {
        for (int k = 0; k < V; k++) {
            mean[k] = widen(mean_of[column + k]);
            scale[k] = 1 / sqrt(widen(variance_of[column + k]) + (W)eps) * (weight ? widen(weight[column + k]) : 1);
        }
        auto load = [&](i64 row) { return find(dy, weight ? x : nullptr, nullptr, row * c + column); };
        each_row<2>(own, false, load, [&](i64 row, const Found &found) {
            W slope[V], value[V];
            widen_all(slope, found.dy);
            widen_all(value, found.x);
            for (int k = 0; k < V; k++) {
                all[k] += slope[k];
                all[V + k] += slope[k] * (value[k] - mean[k]);
                slope[k] *= scale[k];
            }
            store_narrow(dx + row * c + column, slope);
        });
    }
    if (!weight) return;
    join_columns(all, room, add_sums);
    if (threadIdx.y == 0 && column < c) write_sums(partial, all, blockIdx.y, c);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_eval_affine(const W *__restrict__ partial, i64 runs, const P *__restrict__ variance_of, P *dweight, P *dbias, i64 c, double eps) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    W all[2 * V];
    join_runs(all, partial, runs, c, room);
    i64 column = strip_column();
    if (threadIdx.y > 0 || column >= c) return;
    for (int k = 0; k < V; k++) {
        dweight[column + k] = narrow<P>(all[V + k] / sqrt(widen(variance_of[column + k]) + (W)eps));
        dbias[column + k] = narrow<P>(all[k]);
    }
}
