// Elements from other places of one dimension: parts, turns, and places that a tensor names.
#include "index.cuh"

#define SLICE 0
#define UNSLICE 1
#define ROLL 2
#define LINES 3
#define EACH 4

#ifndef MODE
#define MODE SLICE
#endif
// Bytes of what is moved at once: an element, or several neighbours within the dimensions behind the one that changes.
#ifndef BYTES
#define BYTES 4
#endif
#ifndef INDEX
#define INDEX u32
#endif

typedef INDEX I;
typedef Bytes<BYTES> E;

// y is [outer, count, inner], x is [outer, size, inner].
struct Line {
    I total, size;
    Divisor<I> count, inner, step;
};

// `numbers`: the first place, the shift, or the places, as the mode has it. `missing` fills what comes from nowhere.
extern "C" __global__ void places(const E *__restrict__ x, const i64 *__restrict__ numbers, E *__restrict__ y, u64 missing, Line line) {
#if MODE == ROLL
    // Once a block: a division of 64 bits costs more than the copy.
    __shared__ I moved;
    if (threadIdx.x == 0) {
        i64 size = (i64)line.size, shift = *numbers % size;
        moved = (I)(shift < 0 ? shift + size : shift);
    }
    __syncthreads();
#elif MODE == SLICE || MODE == UNSLICE
    const I start = (I)*numbers;
#endif
    for (u64 e = first_element(); e < line.total; e += element_stride()) {
        I rest = (I)e;
        I within = digit(rest, line.inner);
        I at = digit(rest, line.count);
        bool there = true;
#if MODE == SLICE
        I place = start + at * line.step.size;
#elif MODE == UNSLICE
        I place = at - start;
        there = at >= start && digit(place, line.step) == 0 && place < line.size;
#elif MODE == ROLL
        I place = at < moved ? at - moved + line.size : at - moved;
#else
        i64 named = numbers[MODE == LINES ? (u64)at : e];
        I place = (I)named;
        there = named >= 0 && named < (i64)line.size;
#endif
        y[e] = there ? x[(rest * line.size + place) * line.inner.size + within] : repeated<E>(missing);
    }
}
