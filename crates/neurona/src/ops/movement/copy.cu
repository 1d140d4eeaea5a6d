// Copies from one strided order of elements to another.
#include "moved.cuh"

// Dimensions, those that lie end to end on both sides joined.
#ifndef RANK
#define RANK 2
#endif
// u32, or u64 for tensors of 2^31 elements and more.
#ifndef INDEX
#define INDEX u32
#endif

typedef INDEX I;

struct View {
    I total, from_offset, to_offset;
    Divisor<I> sizes[RANK];
    // Steps back wrap around.
    I from[RANK], to[RANK];
};

extern "C" __global__ void copy(const E *__restrict__ x, R *__restrict__ y, View view) {
    for (u64 e = first_element(); e < view.total; e += element_stride()) {
        I rest = (I)e, from = view.from_offset, to = view.to_offset;
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            I at = d > 0 ? digit(rest, view.sizes[d]) : rest;
            from += at * view.from[d];
            to += at * view.to[d];
        }
        y[to] = moved(x[from]);
    }
}
