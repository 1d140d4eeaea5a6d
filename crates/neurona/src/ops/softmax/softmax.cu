// Softmax and its logarithm over the rows of [rows, n].
#include "limits.cuh"
#include "rows.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
// Whether the logarithm is wanted.
#ifndef LOGARITHM
#define LOGARITHM 0
#endif

typedef ELEMENT T;
typedef Wide<T> W;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) softmax(const T *__restrict__ x, T *__restrict__ y, i64 rows, i64 n) {
    i64 row = block_row(blockIdx.x), size = row < rows ? n : 0;
    x += row * n, y += row * n;
    W top = Limits<W>::least(), total = 0, value[V];
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) top = larger(top, value[k]);
    });
    top = row_max(top);
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) total += exp(value[k] - top);
    });
    total = row_sum(total);
    W log_total = LOGARITHM ? log(total) : 0;
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        // The maximum goes first: beside it, the logarithm might round away.
        for (int k = 0; k < V; k++) value[k] = LOGARITHM ? (value[k] - top) - log_total : exp(value[k] - top) / total;
        store_narrow(y + i, value);
    });
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) softmax_gradient(const T *__restrict__ dy, const T *__restrict__ y, T *__restrict__ dx, i64 rows, i64 n) {
    i64 row = block_row(blockIdx.x), size = row < rows ? n : 0;
    dy += row * n, y += row * n, dx += row * n;
    W total = 0, slope[V], value[V];
    each_group(size, [&](i64 i) {
        load_wide(slope, dy + i);
        if (!LOGARITHM) load_wide(value, y + i);
        for (int k = 0; k < V; k++) total += LOGARITHM ? slope[k] : slope[k] * value[k];
    });
    total = row_sum(total);
    each_group(size, [&](i64 i) {
        load_wide(slope, dy + i);
        load_wide(value, y + i);
        for (int k = 0; k < V; k++) slope[k] = LOGARITHM ? slope[k] - exp(value[k]) * total : value[k] * (slope[k] - total);
        store_narrow(dx + i, slope);
    });
}
