// Winograd's convolution with 3 × 3 filters and stride 1 (see winograd.cuh): what stands before and after the products.
// Windows and filters are transformed into one matrix for each of (PIXELS + 2)² points, [point][tile][channel] and
// [point][channel][filter]; the products over channels, [point][tile][filter], are transformed back.
//
// PIXELS: pixels of a side of a tile. LANES: channels of a thread. VECTOR: channels of the images come in fours.
#include "winograd.cuh"

#ifndef PIXELS
#define PIXELS 4
#endif
#ifndef LANES
#define LANES 4
#endif
#ifndef VECTOR
#define VECTOR 1
#endif

typedef Side<PIXELS> S;
typedef Lanes<LANES> V;
#define SIDE S::SIZE

// Images and the tiles of one launch: `count` from `first` on, numbered over `down` × `across` of each image.
struct Tiles {
    int height, width, channels;
    // Channels of the matrices: a multiple of 4, filled up with zeros.
    int pitch;
    int padding_h, padding_w;
    int down, across;
    int first, count;
};

// This thread's tile and first channel; the place of the tile's first pixel.
struct Item {
    u32 tile, channel;
    int top, left;
    i64 image;
    bool real;

    __device__ __forceinline__ Item(const Tiles &t) {
        const u32 at = blockIdx.x * blockDim.x + threadIdx.x, across = t.pitch / LANES;
        tile = at / across, channel = at % across * LANES, real = tile < t.count;
        const u32 all = t.first + tile, row = all / t.across;
        left = all % t.across * PIXELS, top = row % t.down * PIXELS, image = row / t.down;
    }
    // Where this item's value of a point lies.
    __device__ __forceinline__ i64 at(const Tiles &t, int row, int column) const {
        return ((i64)(row * SIDE + column) * t.count + tile) * t.pitch + channel;
    }
};

__device__ __forceinline__ V read_pixel(const float *__restrict__ images, const Tiles &t, const Item &item, int row, int column) {
    V value = V::zero();
    if ((u32)row < (u32)t.height && (u32)column < (u32)t.width) {
        const float *const from = images + ((item.image * t.height + row) * t.width + column) * t.channels + item.channel;
#if VECTOR
        value.of = whole_vector<LANES>(from, 0);
#else
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (item.channel + i < t.channels) value.of.at[i] = from[i];
#endif
    }
    return value;
}

__device__ __forceinline__ void write_point(float *__restrict__ to, const V &value) { *(Vector<float, LANES> *)to = value.of; }

// Windows of SIDE × SIDE pixels, which overlap.
extern "C" __global__ void __launch_bounds__(128)
conv2d_winograd_window(const float *__restrict__ images, float *__restrict__ points, const Tiles t) {
    const Item item(t);
    if (!item.real) return;
    transform<SIDE, SIDE, V>([&](int row, int column) { return read_pixel(images, t, item, item.top - t.padding_h + row, item.left - t.padding_w + column); },
                             [](const V(&from)[SIDE], V(&to)[SIDE]) { S::window(from, to); },
                             [&](int row, int column, const V &value) { write_point(points + item.at(t, row, column), value); });
}

// Tiles of the gradient by the output, for the gradient by the filters; and their sums [tile][channel] for the bias, unless
// `sums` is null.
extern "C" __global__ void __launch_bounds__(128)
conv2d_winograd_gradient(const float *__restrict__ gradient, float *__restrict__ points, float *__restrict__ sums, const Tiles t) {
    const Item item(t);
    if (!item.real) return;
    V sum = V::zero();
    transform<PIXELS, SIDE, V>([&](int row, int column) {
        const V value = read_pixel(gradient, t, item, item.top + row, item.left + column);
        sum = sum + value;
        return value;
    }, [](const V(&from)[PIXELS], V(&to)[SIDE]) { S::gradient(from, to); },
       [&](int row, int column, const V &value) { write_point(points + item.at(t, row, column), value); });
    if (sums) write_point(sums + (i64)item.tile * t.pitch + item.channel, sum);
}

// Products back to pixels. Without a bias the pointer is null.
extern "C" __global__ void __launch_bounds__(128)
conv2d_winograd_pixels(const float *__restrict__ points, const float *__restrict__ bias, float *__restrict__ images, const Tiles t, const int relu) {
    const Item item(t);
    if (!item.real) return;
    V start = V::zero();
#pragma unroll
    for (int i = 0; i < LANES; i++)
        if (bias && item.channel + i < t.channels) start.of.at[i] = bias[item.channel + i];
    transform<SIDE, PIXELS, V>([&](int row, int column) { V value; value.of = whole_vector<LANES>(points, item.at(t, row, column)); return value; },
                               [](const V(&from)[SIDE], V(&to)[PIXELS]) { S::pixels(from, to); },
                               [&](int down, int right, V value) {
        const int row = item.top + down, column = item.left + right;
        if (row >= t.height || column >= t.width) return;
        value = value + start;
        // Written so that a NaN stays one.
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (relu && value.of.at[i] < 0.0f) value.of.at[i] = 0.0f;
        float *const to = images + ((item.image * t.height + row) * t.width + column) * t.channels + item.channel;
#if VECTOR
        *(Vector<float, LANES> *)to = value.of;
#else
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (item.channel + i < t.channels) to[i] = value.of.at[i];
#endif
    });
}

// Filters [k, c, 3, 3], scaled by `scale` [k] unless it is null, to [point][depth][column], filled up with zeros: of c × k
// forward; of k × c and turned around for the gradient by the input. Blocks of 32 columns × 8 depths: together their
// threads use all that a line of memory brings.
extern "C" __global__ void __launch_bounds__(256)
conv2d_winograd_filter(const float *__restrict__ weight, const float *__restrict__ scale, float *__restrict__ points, const int k, const int c, const int depths, const int columns, const int input_grad) {
    const int column = blockIdx.x * 32 + threadIdx.x % 32, depth = blockIdx.y * 8 + threadIdx.x / 32;
    if (column >= columns || depth >= depths) return;
    const int filter = input_grad ? depth : column, channel = input_grad ? column : depth;
    const bool real = filter < k && channel < c;
    const float *const from = weight + ((i64)filter * c + channel) * 9;
    const float by = real && scale ? scale[filter] : 1.0f;
    transform<3, SIDE, float>([&](int row, int right) { return real ? by * from[input_grad ? 8 - row * 3 - right : row * 3 + right] : 0.0f; },
                              [](const float(&taps)[3], float(&to)[SIDE]) { S::filter(taps, to); },
                              [&](int row, int right, float value) { points[((i64)(row * SIDE + right) * depths + depth) * columns + column] = value; });
}
