// For each element of a row of [rows, size] the product of all others: what is before it times what is after it.
#include "scan.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

typedef ELEMENT T;
typedef Wide<T> W;

// `before` is room for the products of what is before; it may be y where y is as wide. One thread a row.
extern "C" __global__ void prod_others_rows(const T *x, W *before, T *y, i64 rows, i64 size) {
    for (i64 row = first_element(); row < rows; row += element_stride()) {
        i64 from = row * size;
        W product = 1;
        for (i64 i = from; i < from + size; i++) {
            before[i] = product;
            product *= widen(x[i]);
        }
        product = 1;
        for (i64 i = from + size - 1; i >= from; i--) {
            y[i] = narrow<T>(before[i] * product);
            product *= widen(x[i]);
        }
    }
}

// One block a row, for few long ones.
extern "C" __global__ void prod_others_row(const T *x, W *before, T *y, i64 size) {
    __shared__ W room[32];
    auto times = [](W a, W b) { return a * b; };
    x += blockIdx.x * size, before += blockIdx.x * size, y += blockIdx.x * size;
    W product = 1, total;
    for (i64 first = 0; first < size; first += blockDim.x) {
        i64 i = first + threadIdx.x;
        W others = scan_before(i < size ? widen(x[i]) : W(1), W(1), room, total, times);
        if (i < size) before[i] = product * others;
        product *= total;
    }
    product = 1;
    // From the end, where each thread meets other elements than before.
    __syncthreads();
    for (i64 first = 0; first < size; first += blockDim.x) {
        i64 i = size - 1 - first - threadIdx.x;
        W others = scan_before(i >= 0 ? widen(x[i]) : W(1), W(1), room, total, times);
        if (i >= 0) y[i] = narrow<T>(before[i] * (product * others));
        product *= total;
    }
}
