// Margins around a tensor, and the gradient of those that repeat what is inside.
#include "index.cuh"

#define CONSTANT 0
#define REFLECT 1
#define REPLICATE 2

#ifndef FILL
#define FILL CONSTANT
#endif
// Bytes of an element, and of what is moved at once where the last dimension has no margin.
#ifndef ELEMENT_BYTES
#define ELEMENT_BYTES 4
#endif
#ifndef BYTES
#define BYTES ELEMENT_BYTES
#endif
// The type whose gradients are added.
#ifndef ELEMENT
#define ELEMENT float
#endif
// Dimensions, neighbours without margins joined; the last is that of the tensor.
#ifndef RANK
#define RANK 2
#endif
#ifndef INDEX
#define INDEX u32
#endif

typedef INDEX I;
typedef ELEMENT T;
typedef Bytes<BYTES> E;

struct Frame {
    I total;
    // What element numbers are divided by: sizes with margins forward, without them backward.
    Divisor<I> sizes[RANK];
    I inside[RANK], before[RANK], after[RANK];
};

// `value`: one element, what a constant margin has.
extern "C" __global__ void pad(const E *__restrict__ x, const Bytes<ELEMENT_BYTES> *__restrict__ value, E *__restrict__ y, Frame frame) {
    u64 pattern = 0;
#if FILL == CONSTANT
    for (int k = 0; k < 8; k += ELEMENT_BYTES) pattern |= (u64)*value << (8 * k);
#endif
    for (u64 e = first_element(); e < frame.total; e += element_stride()) {
        I rest = (I)e, from = 0, stride = 1;
        bool there = true;
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            I at = d > 0 ? digit(rest, frame.sizes[d]) : rest;
            // Before the start it wraps around and is greater than any size.
            I place = at - frame.before[d];
            if (place >= frame.inside[d]) {
#if FILL == CONSTANT
                there = false;
#else
                I last = frame.inside[d] - 1;
                bool start = at < frame.before[d];
                if (FILL == REFLECT) place = start ? frame.before[d] - at : last - (place - last);
                else place = start ? 0 : last;
#endif
            }
            from += place * stride;
            stride *= frame.inside[d];
        }
        y[e] = there ? x[from] : repeated<E>(pattern);
    }
}

#if FILL != CONSTANT
// The copies of a place along one dimension: `count` of them, one of which is the place itself.
struct Copies {
    I inside, left, right, low, high;
    u32 count;
};

__device__ __forceinline__ Copies copies_of(I at, I size, I before, I after) {
    Copies copies;
    I last = size - 1;
    copies.inside = before + at;
#if FILL == REFLECT
    copies.left = at >= 1 && at <= before ? 1 : 0;
    copies.right = last - at >= 1 && last - at <= after ? 1 : 0;
    copies.low = before - at;
    copies.high = before + last + (last - at);
#else
    copies.left = at == 0 ? before : 0;
    copies.right = at == last ? after : 0;
    copies.low = 0;
    copies.high = before + size;
#endif
    copies.count = (u32)(copies.left + 1 + copies.right);
    return copies;
}

// The k-th copy: from left to right, or with the place itself first.
__device__ __forceinline__ I copy_at(const Copies &copies, u32 k, bool itself_first) {
    if (itself_first) k = k == 0 ? (u32)copies.left : k <= copies.left ? k - 1 : k;
    if (k < copies.left) return copies.low + k;
    return k == copies.left ? copies.inside : copies.high + (k - copies.left - 1);
}

// Each element sums the gradients of its copies, in the order of the CPU's kernel.
extern "C" __global__ void pad_grad(const T *__restrict__ dy, T *__restrict__ dx, Frame frame) {
    for (u64 e = first_element(); e < frame.total; e += element_stride()) {
        I rest = (I)e;
        Copies copies[RANK];
        u64 count = 1;
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            I at = d > 0 ? digit(rest, frame.sizes[d]) : rest;
            copies[d] = copies_of(at, frame.inside[d], frame.before[d], frame.after[d]);
            count *= copies[d].count;
        }
        Wide<T> sum = 0;
        for (u64 choice = 0; choice < count; choice++) {
            u64 left = choice;
            I from = 0, stride = 1;
#pragma unroll
            for (int d = RANK - 1; d >= 0; d--) {
                u32 k = copies[d].count == 1 ? 0 : (u32)(left % copies[d].count);
                if (copies[d].count > 1) left /= copies[d].count;
                from += copy_at(copies[d], k, d == RANK - 1) * stride;
                stride *= frame.before[d] + frame.inside[d] + frame.after[d];
            }
            sum += widen(dy[from]);
        }
        dx[e] = narrow<T>(sum);
    }
}
#endif
