// The gradient of batch normalisation in training, relu and max pooling in one; see batch_norm_pool.cu.
//
// The winner of each window is found again from x: the first of the greatest after rounding to the images' type, as if
// they had been stored. Where it is not above 0 relu lets nothing pass, so ties at 0 do not matter.
#include "patches.cuh"

// Threads of a block at most, of which a multiprocessor has two: a patch, its winners and several numbers of each channel
// need registers, all the more where they are written again.
#define WINDOW_THREADS 320
#define TILE_THREADS 256

// Channels that are looked at together: one instruction rounds two numbers to 16 bits.
static constexpr int PAIR = V > 1 ? 2 : 1;

// The winners of a window in some channels: what they are, how far from the mean, and where in their patch.
struct Winners {
    W value[PAIR], apart[PAIR];
    int place[PAIR];
};

// In channels k and following, in a patch that begins with the window.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ Winners winners_of(const Patch<ROWS, COLUMNS> &patch, const Normal &normal, int k) {
    Winners best;
#pragma unroll (Window::HELD ? Window::SIZE : 4)
    for (int i = 0; i < Window::SIZE; i++) {
        int place = i / WINDOW_WIDTH * COLUMNS + i % WINDOW_WIDTH;
        Group<T> cell = patch.cell(place);
        W apart[PAIR], value[2] = {};
        for (int j = 0; j < PAIR; j++) {
            apart[j] = wide_at(cell, k + j) - normal.mean[k + j];
            value[j] = normal(apart[j], k + j);
        }
        store_and_read<T>(value[0], value[1]);
        for (int j = 0; j < PAIR; j++) {
            if (i == 0 || value[j] > best.value[j]) best.apart[j] = apart[j], best.place[j] = place;
            best.value[j] = i == 0 ? value[j] : greater(best.value[j], value[j]);
        }
    }
    return best;
}

// What the forward pass used, from what it left.
__device__ __forceinline__ void recall(Normal &normal, W (&inverse)[V], const W *mean, const W *inverse_of, const P *weight, const P *bias) {
    i64 column = strip_column();
    for (int k = 0; k < V; k++) {
        inverse[k] = inverse_of[column + k];
        normal.mean[k] = mean[column + k];
        normal.scale[k] = weight ? inverse[k] * widen(weight[column + k]) : inverse[k];
        normal.shift[k] = bias ? widen(bias[column + k]) : 0;
    }
}

// A patch and the gradient by its window's result.
template <class Patch> struct Sloped {
    Patch cells;
    Group<T> slope;
};

extern "C" __global__ void __launch_bounds__(WINDOW_THREADS, 2)
batch_norm_pool_gradient_sums(const T *__restrict__ dpooled, const T *__restrict__ x, const W *__restrict__ mean,
                              const W *__restrict__ inverse_of, const P *__restrict__ weight, const P *__restrict__ bias,
                              W *__restrict__ partial, i64 run, Images g) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    i64 column = strip_column();
    W all[2 * V] = {};
    if (column < g.c) {
        Normal normal;
        W inverse[V];
        recall(normal, inverse, mean, inverse_of, weight, bias);
        Run own((i64)g.n * g.oh * g.ow, run);
        auto load = [&](i64 at) {
            Window cells = patch_at<Window>(x, Pixel((INDEX)at, g.oh, g.ow), g, column);
            return Sloped<Window>{cells, load_group(dpooled + at * g.c + column)};
        };
        each_row<Window::AHEAD>(own, false, load, [&](i64, const Sloped<Window> &found) {
#pragma unroll
            for (int k = 0; k < V; k += PAIR) {
                Winners best = winners_of(found.cells, normal, k);
                for (int j = 0; j < PAIR; j++) {
                    W slope = best.value[j] > 0 ? wide_at(found.slope, k + j) : 0;
                    all[k + j] += slope;
                    all[V + k + j] += slope * best.apart[j];
                }
            }
        });
    }
    join_columns(all, room, add_sums);
    if (threadIdx.y == 0 && column < g.c) write_sums(partial, all, blockIdx.y, g.c);
}

// Weight, bias and their gradients are null where there are none.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2)
batch_norm_pool_gradient(const T *__restrict__ dpooled, const T *__restrict__ x, const W *__restrict__ mean,
                         const W *__restrict__ inverse_of, const P *__restrict__ weight, const P *__restrict__ bias,
                         const W *__restrict__ partial, i64 runs, T *__restrict__ dx, P *dweight, P *dbias, i64 run, Images g) {
    __shared__ W room[2 * V * COLUMN_THREADS / 2];
    i64 rows = (i64)g.n * g.h * g.w, column = strip_column();
    W all[2 * V], average[V], tilt[V], inverse[V];
    join_runs(all, partial, runs, g.c, room);
    if (column >= g.c) return;
    Normal normal;
    recall(normal, inverse, mean, inverse_of, weight, bias);
    for (int k = 0; k < V; k++) {
        average[k] = all[k] / (W)rows;
        tilt[k] = all[V + k] * inverse[k] * inverse[k] / (W)rows;
        if (dweight && blockIdx.y + threadIdx.y == 0) {
            dweight[column + k] = narrow<P>(all[V + k] * inverse[k]);
            dbias[column + k] = narrow<P>(all[k]);
        }
    }
    int down = (g.h + STRIDE_DOWN - 1) / STRIDE_DOWN, across = (g.w + STRIDE_ACROSS - 1) / STRIDE_ACROSS;
    Run own((i64)g.n * down * across, run);
    auto load = [&](i64 number) {
        Pixel at((INDEX)number, down, across);
        Sloped<Tile> found = {patch_at<Tile>(x, at, g, column), {}};
        if (at.y < g.oh && at.x < g.ow) found.slope = load_group(dpooled + offset(at.image, at.y, at.x, 0, g.oh, g.ow, g.c) + column);
        return found;
    };
    each_row<Tile::AHEAD>(own, true, load, [&](i64, const Sloped<Tile> &found) {
        const Tile &tile = found.cells;
        W slope[V];
        int place[V];
#pragma unroll
        for (int k = 0; k < V; k += PAIR) {
            Winners best = winners_of(tile, normal, k);
            for (int j = 0; j < PAIR; j++) {
                slope[k + j] = best.value[j] > 0 ? wide_at(found.slope, k + j) : 0;
                place[k + j] = best.place[j];
            }
        }
        T *corner = dx + (tile.corner - x);
#pragma unroll (Tile::HELD ? Tile::SIZE : 1)
        for (int i = 0; i < Tile::SIZE; i++) {
            if (!tile.inside(i)) continue;
            W value[V];
            widen_all(value, tile.cell(i));
            for (int k = 0; k < V; k++) {
                W won = place[k] == i ? slope[k] : 0;
                value[k] = (won - average[k] - (value[k] - normal.mean[k]) * tilt[k]) * normal.scale[k];
            }
            store_narrow(corner + i / STRIDE_ACROSS * tile.row + (i64)(i % STRIDE_ACROSS * g.c), value);
        }
    });
}
