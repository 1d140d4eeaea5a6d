// What stands around the vendor's kernels: filters in the order and type they want, gradients back in ours, bias and
// relu where their fused kernels have none.
//
// FROM, TO: element types read and written. SCALE: type of the filters' scales.
#include "prelude.cuh"

#ifndef FROM
#define FROM float
#endif
#ifndef TO
#define TO float
#endif
#ifndef SCALE
#define SCALE float
#endif

// [k, c, taps] as [k, taps, c], each filter times its scale where there is one.
extern "C" __global__ void pack_filters(const FROM *filters, const SCALE *scale, TO *packed, int c, int taps, i64 elements) {
    for (i64 at = first_element(); at < elements; at += element_stride()) {
        const i64 k = at / ((i64)c * taps), rest = at % ((i64)c * taps);
        const i64 channel = rest % c, tap = rest / c;
        const auto value = widen(filters[(k * c + channel) * taps + tap]);
        packed[at] = narrow<TO>(scale ? value * widen(scale[k]) : value);
    }
}

// [k, taps, c] as [k, c, taps].
extern "C" __global__ void unpack_filters(const FROM *packed, TO *filters, int c, int taps, i64 elements) {
    for (i64 at = first_element(); at < elements; at += element_stride()) {
        const i64 k = at / ((i64)c * taps), rest = at % ((i64)c * taps);
        const i64 tap = rest % taps, channel = rest / taps;
        filters[at] = narrow<TO>(widen(packed[(k * taps + tap) * c + channel]));
    }
}

// The same numbers in another type.
extern "C" __global__ void convert(const FROM *from, TO *to, i64 elements) {
    for (i64 at = first_element(); at < elements; at += element_stride()) to[at] = narrow<TO>(widen(from[at]));
}

// y = relu(y + bias) in place, for rows of k channels; FROM is the type of the bias, TO that of y.
extern "C" __global__ void add_bias(const FROM *bias, TO *y, int k, int relu, i64 elements) {
    for (i64 at = first_element(); at < elements; at += element_stride()) {
        auto value = widen(y[at]);
        if (bias) value += widen(bias[at % k]);
        // A NaN stays one.
        y[at] = narrow<TO>(relu && value <= 0 ? Wide<TO>(0) : value);
    }
}

// y = 0 in place where relu is not above zero.
extern "C" __global__ void mask(const TO *relu, TO *y, i64 elements) {
    for (i64 at = first_element(); at < elements; at += element_stride())
        if (!(widen(relu[at]) > 0)) y[at] = narrow<TO>(Wide<TO>(0));
}

// Sums over rows of k channels: each block its share of the rows, one partial sum a channel; block = 256 threads.
extern "C" __global__ void sum_rows(const FROM *dy, float *parts, int k, i64 rows) {
    const i64 share = (rows + gridDim.y - 1) / gridDim.y;
    const i64 begin = share * blockIdx.y, end = begin + share < rows ? begin + share : rows;
    // 32 channels side by side, 8 rows at a time.
    const int channel = blockIdx.x * 32 + threadIdx.x % 32;
    float sum = 0;
    if (channel < k)
        for (i64 row = begin + threadIdx.x / 32; row < end; row += 8) sum += (float)widen(dy[row * k + channel]);
    __shared__ float room[8][32];
    room[threadIdx.x / 32][threadIdx.x % 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32 && channel < k) {
        for (int i = 1; i < 8; i++) sum += room[i][threadIdx.x];
        parts[(i64)blockIdx.y * k + channel] = sum;
    }
}

// The partial sums added in their order.
extern "C" __global__ void sum_parts(const float *parts, TO *sums, int k, int count) {
    const int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= k) return;
    float sum = 0;
    for (int i = 0; i < count; i++) sum += parts[(i64)i * k + channel];
    sums[channel] = narrow<TO>(sum);
}
