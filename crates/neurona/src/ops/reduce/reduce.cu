// Joins the middle dimension of [outer, mid, inner]: sums, means, products, largest and smallest elements.
//
// Where one result has too many elements for a block they are cut into parts, whose results lie in the workspace as
// [outer, parts, inner] and are joined by another launch of the same kernel. The order is fixed by the shape.
#include "limits.cuh"
#include "columns.cuh"
#include "rows.cuh"

// Elements to join, and what is written: partial results are of the type that sums use.
#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef RESULT
#define RESULT ELEMENT
#endif
// 0 sum, 1 product, 2 largest, 3 smallest.
#ifndef HOW
#define HOW 0
#endif

template <class T> struct JoinedOf { typedef Wide<T> type; };
template <> struct JoinedOf<i64> { typedef i64 type; };
template <> struct JoinedOf<u8> { typedef i64 type; };

typedef ELEMENT T;
typedef RESULT R;
typedef JoinedOf<T>::type A;

__device__ __forceinline__ i64 widen(i64 x) { return x; }
__device__ __forceinline__ i64 widen(u8 x) { return x; }
template <> struct Narrow<i64> { static __device__ __forceinline__ i64 of(i64 x) { return x; } };
template <> struct Narrow<u8> { static __device__ __forceinline__ u8 of(i64 x) { return (u8)x; } };

__device__ __forceinline__ A start() { return HOW == 0 ? A(0) : HOW == 1 ? A(1) : HOW == 2 ? Limits<A>::least() : Limits<A>::greatest(); }

// NaN is the largest and the smallest. Whole numbers wrap around, which only unsigned ones may do.
__device__ __forceinline__ double combine(double a, double b) { return HOW == 0 ? a + b : HOW == 1 ? a * b : HOW == 2 ? larger(a, b) : b < a || b != b ? b : a; }
__device__ __forceinline__ float combine(float a, float b) { return HOW == 0 ? a + b : HOW == 1 ? a * b : HOW == 2 ? larger(a, b) : b < a || b != b ? b : a; }
__device__ __forceinline__ i64 combine(i64 a, i64 b) {
    return HOW == 0 ? (i64)((u64)a + (u64)b) : HOW == 1 ? (i64)((u64)a * (u64)b) : HOW == 2 ? larger(a, b) : b < a ? b : a;
}

// Kept dimensions in the order of memory, from the outermost, with their steps in the result: images with channels last
// give results whose dimensions stand in another order.
struct Results {
    i64 size[3], step[3];
};

__device__ __forceinline__ void write(R *y, i64 at, A value, double divisor, const Results &order) {
    if (divisor != 1) value = (A)(value / (A)divisor);
    i64 place = 0;
    for (int k = 2; k > 0; k--) {
        i64 rest = order.size[k] > 1 ? at / order.size[k] : at;
        place += (at - rest * order.size[k]) * order.step[k];
        at = rest;
    }
    y[place + at * order.step[0]] = narrow<R>(value);
}

// inner = 1: LANES threads a part of a row. The rows start at whole vectors; the last may end with a part of one.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) reduce_rows(const T *__restrict__ x, R *__restrict__ y, i64 outer, i64 mid, i64 parts, i64 part, double divisor, Results order) {
    i64 unit = block_row(blockIdx.x);
    A total[V];
    for (int k = 0; k < V; k++) total[k] = start();
    if (unit < outer * parts) {
        i64 row = parts > 1 ? unit / parts : unit, first = (unit - row * parts) * part;
        i64 size = first + part < mid ? part : mid - first, whole = size / V * V;
        x += row * mid + first;
#pragma unroll 4
        for (i64 i = row_lane() * V; i < whole; i += LANES * V) {
            Group<T> vector = load_group(x + i);
            for (int k = 0; k < V; k++) total[k] = combine(total[k], (A)widen(vector.at[k]));
        }
        for (i64 i = whole + row_lane(); i < size; i += LANES) total[0] = combine(total[0], (A)widen(x[i]));
    }
    for (int k = 1; k < V; k++) total[0] = combine(total[0], total[k]);
    A all = join_row(total[0], [](A a, A b) { return combine(a, b); });
    if (row_lane() == 0 && unit < outer * parts) write(y, unit, all, divisor, order);
}

// inner > 1: a block has a strip of columns and a part of the rows. Parts are blockIdx.y, outer indices blockIdx.z and on.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
reduce_columns(const T *__restrict__ x, R *__restrict__ y, i64 outer, i64 mid, i64 inner, i64 parts, i64 part, double divisor, Results order) {
    __shared__ A room[V * COLUMN_THREADS / 2];
    i64 column = strip_column();
    for (i64 o = blockIdx.z; o < outer; o += gridDim.z) {
        A all[V];
        for (int k = 0; k < V; k++) all[k] = start();
        const T *from = x + o * mid * inner + column;
        auto load = [&](i64 row) { return load_group(from + row * inner); };
        auto add = [&](i64, const Group<T> &found) {
            for (int k = 0; k < V; k++) all[k] = combine(all[k], (A)widen(found.at[k]));
        };
        if (column < inner) each_row<4>(Run(mid, part), false, load, add);
        join_columns(all, room, [](A(&a)[V], const A(&b)[V]) {
            for (int k = 0; k < V; k++) a[k] = combine(a[k], b[k]);
        });
        if (threadIdx.y == 0 && column < inner)
            for (int k = 0; k < V; k++) write(y, (o * parts + blockIdx.y) * inner + column + k, all[k], divisor, order);
    }
}

// Few columns and rows, many outer indices: one thread a result.
extern "C" __global__ void reduce_lines(const T *__restrict__ x, R *__restrict__ y, i64 outer, i64 mid, i64 inner, double divisor, Results order) {
    for (i64 line = first_element(); line < outer * inner; line += element_stride()) {
        i64 o = line / inner;
        const T *from = x + o * mid * inner + line - o * inner;
        A all = start();
#pragma unroll 4
        for (i64 i = 0; i < mid; i++) all = combine(all, (A)widen(from[i * inner]));
        write(y, line, all, divisor, order);
    }
}
