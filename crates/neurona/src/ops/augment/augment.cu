// Images from bytes to normalised floats, changed at random on the way. Bytes come plane by plane and leave as pixels
// with channels side by side, so nothing has to be transposed before the first convolution. A block works on one image,
// or on a strip of a large one. Products and sums are rounded one by one, never merged, so that the bits are those of
// CPU cores.
#include "random.cuh"

// The element type of the result.
#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef CHANNELS
#define CHANNELS 3
#endif
// Pixels that a thread makes at once: as many as fill 16-byte stores, or 1.
#ifndef PIXELS
#define PIXELS 4
#endif
#ifndef REFLECT
#define REFLECT 0
#endif
// Colours are changed; contrast among them.
#ifndef JITTER
#define JITTER 1
#endif
#ifndef CONTRAST
#define CONTRAST 1
#endif
// Images are mixed with others.
#ifndef MIX
#define MIX 1
#endif

typedef ELEMENT T;

// Channels that are held at once: all of a colour, which is changed as a whole.
constexpr int GROUP = CHANNELS <= 4 ? CHANNELS : 1;
constexpr int PICTURES = MIX ? 2 : 1;
constexpr int DRAWS = 16;

enum Change { BRIGHTNESS, CONTRAST_CHANGE, SATURATION };

// The orders of changes, two bits each, the first in the lowest.
__device__ constexpr u8 ORDERS[6] = {0x24, 0x18, 0x21, 0x09, 0x12, 0x06};

struct Settings {
    int images, height, width;
    int padding, cutout, classes;
    float flip;
    float low[3], span[3];
};

struct Picture {
    const u8 *bytes;
    int top, left;
    bool flipped;
    int hole_top, hole_bottom, hole_left, hole_right;
    u32 order;
    float factor[3];
    float grey;
};

__device__ __forceinline__ void hole(u64 bits, int side, int size, int &start, int &end) {
    int centre = (int)random_below(bits, (u32)size);
    start = max(centre - side / 2, 0);
    end = (int)min((i64)centre + side - side / 2, (i64)size);
}

__device__ __forceinline__ Picture picture(const Settings &s, const u8 *images, int image, const u64 *bits, const u8 *flips) {
    Picture p;
    p.bytes = images + (i64)image * CHANNELS * s.height * s.width;
    p.top = (int)random_below(bits[0], 2u * s.padding + 1);
    p.left = (int)random_below(bits[1], 2u * s.padding + 1);
    p.flipped = flips ? flips[image] != 0 : random_unit(bits[2]) < s.flip;
    hole(bits[3], s.cutout, s.height, p.hole_top, p.hole_bottom);
    hole(bits[4], s.cutout, s.width, p.hole_left, p.hole_right);
    p.order = ORDERS[random_below(bits[5], 6)];
    for (int k = 0; k < 3; k++) p.factor[k] = __fadd_rn(s.low[k], __fmul_rn(s.span[k], random_unit(bits[6 + k])));
    p.grey = 0;
    return p;
}

// From `from` (at 0) over `v` (at 1) and beyond.
__device__ __forceinline__ float blend(float factor, float v, float from) {
    float x = __fadd_rn(__fmul_rn(factor, v), __fmul_rn(__fsub_rn(1.0f, factor), from));
    return fminf(fmaxf(x, 0.0f), 1.0f);
}

__device__ __forceinline__ float luminance(const float (&v)[GROUP]) {
    if constexpr (GROUP == 3) {
        return __fadd_rn(__fadd_rn(__fmul_rn(0.2989f, v[0]), __fmul_rn(0.587f, v[1])), __fmul_rn(0.114f, v[2]));
    }
    return v[0];
}

// Changes the colour of a pixel, up to but without contrast or to the end.
__device__ __forceinline__ void recolor(const Picture &p, float (&v)[GROUP], bool to_contrast) {
#pragma unroll
    for (int place = 0; place < 3; place++) {
        u32 change = (p.order >> (2 * place)) & 3;
        if (change == CONTRAST_CHANGE && (to_contrast || !CONTRAST)) {
            if (to_contrast) return;
            continue;
        }
        if (change == SATURATION && GROUP == 1) continue;
        float from = change == BRIGHTNESS ? 0.0f : change == SATURATION ? luminance(v) : p.grey;
        // Chosen by comparing: an index would put the factors into memory.
        float factor = change == BRIGHTNESS ? p.factor[0] : change == SATURATION ? p.factor[2] : p.factor[1];
#pragma unroll
        for (int k = 0; k < GROUP; k++) v[k] = blend(factor, v[k], from);
    }
}

// The source of a row or column of the window; false when it shows black.
__device__ __forceinline__ bool inside(int &place, int size) {
#if REFLECT
    place = place < 0 ? -place : place < size ? place : 2 * (size - 1) - place;
    return true;
#else
    return (u32)place < (u32)size;
#endif
}

// A pixel of the window, each channel from 0 to 1.
__device__ __forceinline__ void window(const Settings &s, const Picture &p, int y, int x, int first, float (&v)[GROUP]) {
    int row = y + p.top - s.padding, column = (p.flipped ? s.width - 1 - x : x) + p.left - s.padding;
    bool shown = inside(row, s.height) & inside(column, s.width);
    const u8 *from = p.bytes + ((i64)first * s.height + row) * s.width + column;
#pragma unroll
    for (int k = 0; k < GROUP; k++) v[k] = shown ? (float)from[k * s.height * s.width] / 255.0f : 0.0f;
}

// The mean grey of the image as it is when its contrast is changed. The sum is one of whole numbers: any order of
// threads gives the same bits.
__device__ __forceinline__ float mean_grey(const Settings &s, const Picture &p, u64 *room) {
    u64 sum = 0;
    int pixels = s.height * s.width;
    for (int at = threadIdx.x; at < pixels; at += blockDim.x) {
        int y = at / s.width;
        float v[GROUP];
        window(s, p, y, at - y * s.width, 0, v);
        recolor(p, v, true);
        sum += (u32)(luminance(v) * 16777216.0f);
    }
    return (float)((double)block_sum(sum, room) / ((double)pixels * 16777216.0));
}

__device__ __forceinline__ float mixed(float own, float v, float other) {
    return __fadd_rn(__fmul_rn(other, __fsub_rn(1.0f, own)), __fmul_rn(v, own));
}

// Blocks: (images, strips of an image); one strip when contrast is changed. `flips` may be null.
extern "C" __global__ void __launch_bounds__(512, 1) augment(const u8 *__restrict__ images, const u64 *__restrict__ key, const float *__restrict__ statistics, const u8 *__restrict__ flips,
                                   const float *__restrict__ own_share, const i64 *__restrict__ labels, T *__restrict__ result, float *__restrict__ probabilities, Settings s) {
    __shared__ u64 bits[PICTURES][DRAWS];
    __shared__ u64 room[33];
    int image = blockIdx.x;
    int step = s.images < 2 ? 0 : 1 + (int)random_below(random_at(~*key, 0), (u32)s.images - 1);
    int other = (int)(((i64)image + step) % s.images);

    // The draws are hashed once a block, not once a thread.
    if (threadIdx.x < PICTURES * DRAWS) {
        u64 of = threadIdx.x < DRAWS ? image : other;
        bits[threadIdx.x / DRAWS][threadIdx.x % DRAWS] = random_at(*key, of * DRAWS + threadIdx.x % DRAWS);
    }
    __syncthreads();
    Picture pictures[PICTURES];
#pragma unroll
    for (int i = 0; i < PICTURES; i++) {
        pictures[i] = picture(s, images, i ? other : image, bits[i], flips);
        if (JITTER && CONTRAST) pictures[i].grey = mean_grey(s, pictures[i], room);
    }

    float own = MIX ? *own_share : 1.0f;
    int pixels = s.height * s.width;
    T *to = result + (i64)image * CHANNELS * pixels;
    for (i64 start = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * PIXELS; start < pixels; start += (i64)gridDim.y * blockDim.x * PIXELS) {
        int y = (int)start / s.width, x = (int)start - y * s.width;
        for (int first = 0; first < CHANNELS; first += GROUP) {
            T made[PIXELS * GROUP];
            int row = y, column = x;
#pragma unroll
            for (int pixel = 0; pixel < PIXELS; pixel++) {
                float sum[GROUP];
#pragma unroll
                for (int i = 0; i < PICTURES; i++) {
                    const Picture &p = pictures[i];
                    float v[GROUP];
                    window(s, p, row, column, first, v);
                    if (JITTER) recolor(p, v, false);
                    bool zeroed = row >= p.hole_top & row < p.hole_bottom & column >= p.hole_left & column < p.hole_right;
#pragma unroll
                    for (int k = 0; k < GROUP; k++) {
                        float normal = (v[k] - statistics[first + k]) / statistics[CHANNELS + first + k];
                        normal = zeroed ? 0.0f : normal;
                        sum[k] = i ? mixed(own, sum[k], normal) : normal;
                    }
                }
#pragma unroll
                for (int k = 0; k < GROUP; k++) made[pixel * GROUP + k] = narrow<T>(sum[k]);
                column++;
                if (column == s.width) row++, column = 0;
            }
#if PIXELS > 1
            // The host has made sure that the parts are whole packs.
            Pack<T> *packs = reinterpret_cast<Pack<T> *>(to + start * GROUP);
            constexpr int EACH = 16 / sizeof(T);
#pragma unroll
            for (int pack = 0; pack < PIXELS * GROUP / EACH; pack++) {
                Pack<T> full;
#pragma unroll
                for (int k = 0; k < EACH; k++) full.at[k] = made[pack * EACH + k];
                packs[pack] = full;
            }
#else
#pragma unroll
            for (int k = 0; k < GROUP; k++) to[start * CHANNELS + first + k] = made[k];
#endif
        }
    }

#if MIX
    if (blockIdx.y == 0) {
        for (int k = threadIdx.x; k < s.classes; k += blockDim.x) {
            probabilities[(i64)image * s.classes + k] = mixed(own, labels[image] == k ? 1.0f : 0.0f, labels[other] == k ? 1.0f : 0.0f);
        }
    }
#endif
}
