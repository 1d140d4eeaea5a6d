// The gradients of layer normalisation's weight and bias: sums over the rows of [rows, n].
#include "columns.cuh"

// Of x and dy.
#ifndef ELEMENT
#define ELEMENT float
#endif
// Of weight and bias, their gradients, and the statistics of rows; wider than ELEMENT in mixed precision.
#ifndef PARAMETER
#define PARAMETER ELEMENT
#endif

typedef ELEMENT T;
typedef PARAMETER P;
typedef Wide<T> W;

struct Found {
    Group<T> dy, x;
    W mean, inverse;
};

__device__ __forceinline__ void add_sums(W (&a)[2 * V], const W (&b)[2 * V]) {
    for (int k = 0; k < 2 * V; k++) a[k] += b[k];
}

// The sums of each run of rows, as [runs, 2, n]: by weight, then by bias.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
layer_norm_affine(const T *__restrict__ dy, const T *__restrict__ x, const P *__restrict__ means, const P *__restrict__ inverses,
                  W *__restrict__ partial, i64 rows, i64 n, i64 run) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    i64 column = strip_column();
    W all[2 * V] = {};
    auto load = [&](i64 row) {
        i64 at = row * n + column;
        return Found{load_group(dy + at), load_group(x + at), widen(means[row]), widen(inverses[row])};
    };
    auto add = [&](i64, const Found &found) {
        for (int k = 0; k < V; k++) {
            W slope = widen(found.dy.at[k]);
            all[k] += slope * ((widen(found.x.at[k]) - found.mean) * found.inverse);
            all[V + k] += slope;
        }
    };
    if (column < n) each_row<2>(Run(rows, run), false, load, add);
    join_columns(all, room, add_sums);
    if (threadIdx.y > 0 || column >= n) return;
    for (int k = 0; k < V; k++) {
        partial[2 * blockIdx.y * n + column + k] = all[k];
        partial[(2 * blockIdx.y + 1) * n + column + k] = all[V + k];
    }
}

// Joins the runs. What has no gradient is null.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
layer_norm_affine_finish(const W *__restrict__ partial, i64 runs, P *__restrict__ dweight, P *__restrict__ dbias, i64 n) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    i64 column = strip_column();
    W all[2 * V] = {};
    if (column < n)
        for (i64 i = threadIdx.y; i < runs; i += blockDim.y)
            for (int k = 0; k < V; k++) {
                all[k] += partial[2 * i * n + column + k];
                all[V + k] += partial[(2 * i + 1) * n + column + k];
            }
    join_columns(all, room, add_sums);
    if (threadIdx.y > 0 || column >= n) return;
    for (int k = 0; k < V; k++) {
        if (dweight) dweight[column + k] = narrow<P>((Wide<P>)all[k]);
        if (dbias) dbias[column + k] = narrow<P>((Wide<P>)all[V + k]);
    }
}
