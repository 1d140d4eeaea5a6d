// Batch normalisation in training, relu and max pooling of images [n, h, w, c] in one.
//
// What is normalised never lies in memory: it is computed from x, which has to be read anyway, and pooled pixels are all
// that is written. Moments come from batch_norm.cu's kernels.
#include "patches.cuh"

// Statistics in W: rounded ones would not give the gradient the same winners.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
batch_norm_pool(const T *__restrict__ x, T *__restrict__ pooled, const W *__restrict__ partial, i64 runs, i64 partial_run,
                Channels<W> channels, i64 run, double eps, Images g) {
    __shared__ W room[MOMENTS * COLUMN_THREADS / 2];
    i64 rows = (i64)g.n * g.h * g.w, column = strip_column();
    W all[MOMENTS];
    join_runs(all, partial, runs, partial_run, rows, g.c, room);
    if (column >= g.c) return;
    Normal normal;
    normal.take(all, channels, blockIdx.y + threadIdx.y == 0, rows, eps);
    Run own((i64)g.n * g.oh * g.ow, run);
    auto load = [&](i64 at) { return patch_at<Window>(x, Pixel((INDEX)at, g.oh, g.ow), g, column); };
    each_row<Window::AHEAD>(own, true, load, [&](i64 at, const Window &window) {
        Group<T> result;
#pragma unroll
        for (int k = 0; k < V; k++) {
            W best = normal(wide_at(window.cell(0), k) - normal.mean[k], k);
#pragma unroll (Window::HELD ? Window::SIZE : 4)
            for (int i = 1; i < Window::SIZE; i++)
                best = greater(best, normal(wide_at(window.cell(i), k) - normal.mean[k], k));
            // Rounding and relu keep the order: once is enough.
            result.at[k] = narrow<T>(best < 0 ? 0 : best);
        }
        store_group(pooled + at * g.c + column, result);
    });
}
