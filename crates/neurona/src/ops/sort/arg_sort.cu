// The places of the elements along the middle dimension of [outer, size, inner] in order of size, the first `keep` of
// them. Equal elements keep their order; NaN is larger than all numbers.
//
// A block sorts tiles of a line in shared memory. Lines of several tiles are then merged pair by pair: each element finds
// its place by a search in the other half. No two items are equal, so every way of sorting gives one result.
#include "prelude.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef DESCENDING
#define DESCENDING 0
#endif
// Elements of a tile, a power of two.
#ifndef TILE
#define TILE 2048
#endif
// Tiles that a block sorts side by side.
#ifndef TILES
#define TILES 1
#endif

typedef ELEMENT T;

struct __align__(16) Item {
    u64 key, place;
};
__device__ __forceinline__ bool before(const Item &a, const Item &b) { return a.key < b.key || (a.key == b.key && a.place < b.place); }

// Whole numbers in the order of the values. Adding 0 makes one zero of two.
__device__ __forceinline__ u64 key(double x) {
    u64 bits = (u64)__double_as_longlong(x + 0.0);
    return x != x ? ~0ull : bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ u64 key(float x) { return key((double)x); }
__device__ __forceinline__ u64 key(f16 x) { return key(widen(x)); }
__device__ __forceinline__ u64 key(bf16 x) { return key(widen(x)); }
__device__ __forceinline__ u64 key(i64 x) { return (u64)x ^ 1ull << 63; }
__device__ __forceinline__ u64 key(u8 x) { return x; }

// Sorts tiles; with `runs` they are left there, [lines, tiles, TILE] in all, else the places are the result.
extern "C" __global__ void arg_sort(const T *__restrict__ x, i64 *__restrict__ places, Item *__restrict__ runs, i64 lines, i64 tiles, i64 size, i64 inner, i64 keep) {
    __shared__ Item room[TILES * TILE];
    Item *own = room + threadIdx.y * TILE;
    i64 unit = (i64)blockIdx.x * TILES + threadIdx.y, line = unit / tiles, first = (unit - line * tiles) * TILE;
    i64 o = line / inner, column = line - o * inner;
    for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
        i64 place = first + i;
        // What fills the last tile up comes after all there is.
        u64 order = ~0ull;
        if (line < lines && place < size) {
            order = key(x[(o * size + place) * inner + column]);
            if (DESCENDING) order = ~order;
        }
        own[i] = {order, (u64)place};
    }
    for (int block = 2; block <= TILE; block *= 2)
        for (int step = block / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int t = threadIdx.x; t < TILE / 2; t += blockDim.x) {
                int i = 2 * t - (t & (step - 1));
                Item a = own[i], b = own[i + step];
                if (before(b, a) == ((i & block) == 0)) own[i] = b, own[i + step] = a;
            }
        }
    __syncthreads();
    if (line >= lines) return;
    for (int i = threadIdx.x; i < TILE; i += blockDim.x)
        if (runs) runs[unit * TILE + i] = own[i];
        else if (i < keep) places[(o * keep + i) * inner + column] = (i64)own[i].place;
}

// Merges each two neighbouring runs of `run` items of lines of `length` items.
extern "C" __global__ void arg_sort_merge(const Item *__restrict__ from, Item *__restrict__ to, i64 total, i64 length, i64 run) {
    for (i64 at = first_element(); at < total; at += element_stride()) {
        i64 line = at / length, i = at - line * length, mine = i / run, other = (mine ^ 1) * run;
        Item item = from[at];
        // How many of the other run come before: from `low` to `high` of them.
        i64 low = 0, high = other >= length ? 0 : other + run < length ? run : length - other;
        const Item *others = from + line * length + other;
        while (low < high) {
            i64 middle = (low + high) / 2;
            if (before(others[middle], item)) low = middle + 1;
            else high = middle;
        }
        to[line * length + (mine & ~1ll) * run + (i - mine * run) + low] = item;
    }
}

// The places of the first `keep` items of each line.
extern "C" __global__ void arg_sort_places(const Item *__restrict__ sorted, i64 *__restrict__ places, i64 lines, i64 length, i64 inner, i64 keep) {
    for (i64 at = first_element(); at < lines * keep; at += element_stride()) {
        i64 column = at % inner, k = at / inner % keep, o = at / inner / keep;
        places[at] = (i64)sorted[(o * inner + column) * length + k].place;
    }
}
