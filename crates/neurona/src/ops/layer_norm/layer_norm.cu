// Layer normalisation of the rows of [rows, n].
#include "rows.cuh"

// Of x, y and their gradients.
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

// Weight and bias are null where there are none.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) layer_norm(const T *__restrict__ x, const P *__restrict__ weight, const P *__restrict__ bias, T *__restrict__ y,
                                      P *__restrict__ means, P *__restrict__ inverses, i64 rows, i64 n, double eps) {
    i64 row = block_row(blockIdx.x), size = row < rows ? n : 0;
    x += row * n, y += row * n;
    // Measured from the first element, and deviations from the mean in a pass of their own: nothing is lost far from zero.
    W first = size ? widen(x[0]) : 0, sum = 0, square = 0, value[V];
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) sum += value[k] - first;
    });
    W mean = first + row_sum(sum) / (W)n;
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) square += (value[k] - mean) * (value[k] - mean);
    });
    W inverse = 1 / sqrt(row_sum(square) / (W)n + (W)eps);
    if (row < rows && row_lane() == 0) {
        means[row] = narrow<P>((Wide<P>)mean);
        inverses[row] = narrow<P>((Wide<P>)inverse);
    }
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        W scale[V], shift[V];
        if (weight) load_wide(scale, weight + i);
        if (bias) load_wide(shift, bias + i);
        for (int k = 0; k < V; k++) {
            value[k] = (value[k] - mean) * inverse;
            if (weight) value[k] *= scale[k];
            if (bias) value[k] += shift[k];
        }
        store_narrow(y + i, value);
    });
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) layer_norm_gradient(const T *__restrict__ dy, const T *__restrict__ x, const P *__restrict__ means,
                                               const P *__restrict__ inverses, const P *__restrict__ weight, T *__restrict__ dx,
                                               i64 rows, i64 n) {
    i64 row = block_row(blockIdx.x), size = row < rows ? n : 0;
    dy += row * n, x += row * n, dx += row * n;
    W mean = size ? widen(means[row]) : 0, inverse = size ? widen(inverses[row]) : 0;
    W even = 0, along = 0, slope[V], value[V];
    auto load = [&](i64 i) {
        load_wide(slope, dy + i);
        load_wide(value, x + i);
        W scale[V];
        if (weight) load_wide(scale, weight + i);
        for (int k = 0; k < V; k++) {
            if (weight) slope[k] *= scale[k];
            value[k] = (value[k] - mean) * inverse;
        }
    };
    each_group(size, [&](i64 i) {
        load(i);
        for (int k = 0; k < V; k++) even += slope[k], along += slope[k] * value[k];
    });
    even = row_sum(even) / (W)n;
    along = row_sum(along) / (W)n;
    each_group(size, [&](i64 i) {
        load(i);
        for (int k = 0; k < V; k++) slope[k] = inverse * (slope[k] - even - value[k] * along);
        store_narrow(dx + i, slope);
    });
}
