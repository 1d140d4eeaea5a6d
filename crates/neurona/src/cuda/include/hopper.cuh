// The pipeline that matrix products and convolutions on Hopper share. A block computes a tile of TILE_M x TILE_N sums: GROUPS_M x GROUPS_N
// groups of four warps multiply what a thread of one more warp has the copy engine bring into a ring of stages, so that neither waits for
// the other's instructions. Products are of 16-bit values, sums are f32.
//
// Macros (the host defines them; the defaults compile):
//   ELEMENT          f16 or bf16
//   BIAS_ELEMENT, SCALE_ELEMENT  their types
//   TILE_M, TILE_N   the block's tile; TILE_M / GROUPS_M is a multiple of 64, TILE_N / GROUPS_N one of 32 ... 256 in steps of 32
//   GROUPS_M, _N     how the tile is divided among groups of warps that multiply
//   DEPTH            summed values per stage, a multiple of the chunks and of 16
//   A_ROWS, B_ROWS   0: the summed values of A (B) lie next to each other in memory; 1: its rows (columns) do
//   A_CHUNK, B_CHUNK 64, 32 or 16: values per row in shared memory = the copy engine's swizzle of 128, 64 or 32 bytes
//   STAGES           ring length
//   BLOCKS_PER_SM    1 or 2
//   OUTPUT           1: the tile leaves as ELEMENT through shared memory; 0: f32 sums of shares of the work go to slots, for another kernel to add
//   MASKED           1: a relu's result says which sums become zero; not decided at run time, as it costs registers
//   OUT_BUFFERS      1 or 2: pieces of a group's output that leave at the same time
// Dynamic shared memory in bytes: STAGES (2 DEPTH (TILE_M + TILE_N) + 16) + OUTPUT GROUPS OUT_BUFFERS 128 OUT_CHUNK, where OUT_CHUNK is 64, or
// 32 if TILE_N / GROUPS_N is. At most 232448 in all, 115712 for two blocks per multiprocessor, 76800 for three.
// Block: 128 GROUPS_M GROUPS_N + 32 threads.
#pragma once
#include "ptx_hopper.cuh"

#ifndef ELEMENT
#define ELEMENT bf16
#endif
#ifndef BIAS_ELEMENT
#define BIAS_ELEMENT float
#endif
#ifndef SCALE_ELEMENT
#define SCALE_ELEMENT float
#endif
#ifndef MASKED
#define MASKED 0
#endif
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef GROUPS_M
#define GROUPS_M 2
#endif
#ifndef GROUPS_N
#define GROUPS_N 1
#endif
#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef A_ROWS
#define A_ROWS 0
#endif
#ifndef B_ROWS
#define B_ROWS 0
#endif
#ifndef A_CHUNK
#define A_CHUNK 64
#endif
#ifndef B_CHUNK
#define B_CHUNK 64
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef BLOCKS_PER_SM
#define BLOCKS_PER_SM 2
#endif
#ifndef OUTPUT
#define OUTPUT 1
#endif
#ifndef OUT_BUFFERS
#define OUT_BUFFERS 1
#endif

constexpr int GROUPS = GROUPS_M * GROUPS_N;
// One warp more starts the copies. A whole group of four would have to give registers away again (setmaxnreg), and the compiler refuses
// the wide products for two blocks per multiprocessor then: with one warp everybody has 112 registers there, 224 with one block.
constexpr int SUM_THREADS = 128 * GROUPS, THREADS = SUM_THREADS + 32;
constexpr int GROUP_ROWS = TILE_M / GROUPS_M, GROUP_COLUMNS = TILE_N / GROUPS_N, ROW_BLOCKS = GROUP_ROWS / 64;
constexpr u32 A_BYTES = TILE_M * DEPTH * 2, B_BYTES = TILE_N * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int OUT_CHUNK = GROUP_COLUMNS < 64 ? 32 : 64;
constexpr u32 OUT_BYTES = 64 * OUT_CHUNK * 2;
static_assert(TILE_M % (64 * GROUPS_M) == 0 && TILE_N % (32 * GROUPS_N) == 0, "a group multiplies 64 rows and 32 columns at a time");
static_assert(A_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "the swizzle repeats every 1024 bytes");

#define HOPPER_KERNEL extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)

// Where the things in shared memory stand.
struct Room {
    u32 stages, out, full, empty;
    __device__ __forceinline__ Room(const void *shared, u32 ring = STAGES * STAGE_BYTES) {
        stages = shared_address(shared);
        out = stages + ring;
        full = out + OUTPUT * GROUPS * OUT_BUFFERS * OUT_BYTES;
        empty = full + 8 * STAGES;
    }
    __device__ __forceinline__ void prepare() const {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; ++i) {
                barrier_init(full + 8 * i, 1);
                barrier_init(empty + 8 * i, 4 * GROUPS);
            }
            barrier_init_fence();
        }
        __syncthreads();
    }
};

// A walk around the ring.
struct Walk {
    u32 stage = 0, turn = 0;
    __device__ __forceinline__ void next() { if (++stage == STAGES) { stage = 0; turn ^= 1; } }
};

// The copying side: waits until the stage is free, and says how many bytes will come. Returns where they go.
__device__ __forceinline__ u32 stage_for_copies(const Room &room, const Walk &walk, u32 bytes = STAGE_BYTES) {
    barrier_wait(room.empty + 8 * walk.stage, walk.turn ^ 1);
    barrier_expect(room.full + 8 * walk.stage, bytes);
    return room.stages + walk.stage * bytes;
}

// A matrix in shared memory as the matrix unit wants it described. Swizzled chunks of CHUNK values: with the summed values
// contiguous, eight rows follow every 16 CHUNK bytes; with rows contiguous, chunks follow every 2 CHUNK DEPTH bytes and eight summed
// values every 16 CHUNK bytes.
template <int ROWS, int CHUNK> __device__ __forceinline__ u64 describe(u32 address) {
    u64 swizzle = CHUNK == 64 ? 1 : CHUNK == 32 ? 2 : 3;
    u64 chunk_step = ROWS ? 2 * CHUNK * DEPTH : 16;
    return swizzle << 62 | (u64)(16 * CHUNK >> 4) << 32 | (chunk_step >> 4) << 16 | (address & 0x3ffff) >> 4;
}
// The same matrix, 16 `step` bytes further. The upper half never changes, and sparing it the carry spares registers.
__device__ __forceinline__ u64 moved(u64 description, u32 step) {
    return (description & 0xffffffff00000000ull) | (u32)((u32)description + step);
}
// How far the summed values from k on, and the rows from `row` on, stand from the start, for a tile of ALL rows.
template <int ROWS, int CHUNK, int ALL> __device__ __forceinline__ constexpr u32 step_of(int k, int row) {
    return ROWS ? (u32)(row / CHUNK * 2 * CHUNK * DEPTH + k * CHUNK * 2)
                : (u32)(k / CHUNK * ALL * CHUNK * 2 + k % CHUNK * 2 + row * CHUNK * 2);
}

typedef float Sums[ROW_BLOCKS][GROUP_COLUMNS / 2];

// One arrival for each warp: its share of the product has read the stage.
__device__ __forceinline__ void release(const Room &room, u32 stage) {
    if ((threadIdx.x & 31) == 0) barrier_arrive(room.empty + 8 * stage);
}

__device__ __forceinline__ void settle(Sums &sums) {
#pragma unroll
    for (int b = 0; b < ROW_BLOCKS; ++b)
#pragma unroll
        for (int i = 0; i < GROUP_COLUMNS / 2; ++i) wgmma_settle(sums[b][i]);
}

// The multiplying side: `steps` stages, one at least, into the sums of group `group`.
__device__ __forceinline__ void multiply(Sums &sums, const Room &room, Walk &walk, int steps, int group) {
    u64 a = describe<A_ROWS, A_CHUNK>(room.stages + step_of<A_ROWS, A_CHUNK, TILE_M>(0, group % GROUPS_M * GROUP_ROWS));
    u64 b = describe<B_ROWS, B_CHUNK>(room.stages + A_BYTES + step_of<B_ROWS, B_CHUNK, TILE_N>(0, group / GROUPS_M * GROUP_COLUMNS));
    u32 previous = 0;
    for (int step = 0; step < steps; ++step) {
        barrier_wait(room.full + 8 * walk.stage, walk.turn);
        wgmma_begin();
        u32 at = walk.stage * (STAGE_BYTES >> 4);
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16)
#pragma unroll
            for (int block = 0; block < ROW_BLOCKS; ++block)
                wgmma<A_ROWS, B_ROWS>(sums[block], moved(a, at + (step_of<A_ROWS, A_CHUNK, TILE_M>(k, 64 * block) >> 4)),
                                      moved(b, at + (step_of<B_ROWS, B_CHUNK, TILE_N>(k, 0) >> 4)), step | k, (ELEMENT *)0);
        wgmma_commit();
        // One product stays in flight while the stage before it, now surely read, goes back.
        wgmma_wait<1>();
        if (step) release(room, previous);
        previous = walk.stage;
        walk.next();
    }
    wgmma_wait<0>();
    release(room, previous);
    settle(sums);
}

#if OUTPUT
// What happens to the sums of a column before they are rounded: times scale, plus bias, relu; the addresses may be null.
struct Finish {
    const SCALE_ELEMENT *scale;
    const BIAS_ELEMENT *bias;
    int columns; // values at the addresses
    int relu;
    // With MASKED a relu's result [rows, columns]: sums become zero where it is not above zero. `first_row` is the group's first.
    const ELEMENT *mask;
    int rows, first_row;
    __device__ __forceinline__ void column(int at, float &above, float &below) const {
        float factor = scale && at < columns ? widen(scale[at]) : 1, term = bias && at < columns ? widen(bias[at]) : 0;
        above = above * factor + term;
        below = below * factor + term;
    }
    // The eight sums of a thread from this row of the group and this column on, in the order of wgmma: two columns each of this row
    // and of the one eight below, and the same eight columns on.
    __device__ __forceinline__ void hide(int row, int at, float *d) const {
        struct __align__(4) Two { ELEMENT at[2]; };
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            int down = first_row + row + (i & 2) * 4, across = at + (i & 4) * 2;
            if (down >= rows || across >= columns) continue;
            Two pair = *(const Two *)(mask + (i64)down * columns + across);
            d[i] = widen(pair.at[0]) > 0 ? d[i] : 0;
            d[i + 1] = widen(pair.at[1]) > 0 ? d[i + 1] : 0;
        }
    }
};

// Where a byte of a piece of output lies.
__device__ __forceinline__ u32 swizzled(u32 place) { return place ^ (place >> 3 & (OUT_CHUNK == 64 ? 0x70 : 0x30)); }

// Hands the group's sums, finished and rounded, to `store(shared address, row in the group, column in the group)` in pieces of 64 rows x
// OUT_CHUNK columns; every thread calls it. `first` is the group's first column, `piece` counts pieces over all tiles.
template <class Store>
__device__ __forceinline__ void finish(Sums &sums, const Room &room, int group, u32 &piece, int first, const Finish &how, Store store) {
    u32 thread = threadIdx.x & 127, lane = thread & 31;
    u32 row = thread / 32 * 16 + lane % 16, half = lane / 16 * 16;
#pragma unroll
    for (int block = 0; block < ROW_BLOCKS; ++block)
#pragma unroll
        for (int chunk = 0; chunk < GROUP_COLUMNS; chunk += OUT_CHUNK) {
            u32 buffer = room.out + (group * OUT_BUFFERS + piece % OUT_BUFFERS) * OUT_BYTES;
            ++piece;
            if (thread == 0) store_wait<OUT_BUFFERS - 1>();
            named_barrier(1 + group, 128);
#pragma unroll
            for (int column = 0; column < OUT_CHUNK; column += 16) {
                float *d = &sums[block][(chunk + column) / 2];
                if (how.bias || how.scale) {
                    int at = first + chunk + column + lane % 4 * 2;
                    how.column(at, d[0], d[2]);
                    how.column(at + 1, d[1], d[3]);
                    how.column(at + 8, d[4], d[6]);
                    how.column(at + 9, d[5], d[7]);
                }
                if (how.relu) {
                    // A comparison, not fmaxf: a NaN stays one.
#pragma unroll
                    for (int i = 0; i < 8; ++i) d[i] = d[i] < 0 ? 0 : d[i];
                }
                if (MASKED) how.hide(64 * block + thread / 32 * 16 + lane / 4, first + chunk + column + lane % 4 * 2, d);
                u32 place = row * (OUT_CHUNK * 2) + column * 2 + half;
                store_matrices(buffer + swizzled(place), pack_pair(d[0], d[1], (ELEMENT *)0), pack_pair(d[2], d[3], (ELEMENT *)0),
                               pack_pair(d[4], d[5], (ELEMENT *)0), pack_pair(d[6], d[7], (ELEMENT *)0));
            }
            copy_fence();
            named_barrier(1 + group, 128);
            store(buffer, 64 * block, chunk);
        }
}
#else
// Work divided into equal shares however the tiles divide. Share i sums steps i all / shares up to the next share's first, counted
// through all tiles, and writes what it summed of tile t to slot i + t: from one (share, tile) to the next at least one of the two
// grows, so that no two of them meet. Whoever adds a tile's slots in the order of the shares has a sum of fixed order.
struct Shares {
    i64 at, end;
    int share, steps;
    int tile, step, last; // now: tile, first step, past the last
    __device__ __forceinline__ Shares(int tiles, int steps, int shares, int share) : share(share), steps(steps) {
        i64 all = (i64)tiles * steps;
        at = share * all / shares;
        end = (share + 1) * all / shares;
    }
    __device__ __forceinline__ bool next() {
        if (at >= end) return false;
        tile = (int)(at / steps);
        step = (int)(at - (i64)tile * steps);
        last = (int)min((i64)steps, step + (end - at));
        at += last - step;
        return true;
    }
};

// Writes a group's sums to the slot, row by row.
__device__ __forceinline__ void keep(Sums &sums, float *slots, const Shares &shares, int group) {
    int thread = threadIdx.x % 128, lane = thread % 32;
    float *slot = slots + ((i64)(shares.share + shares.tile) * TILE_M + group % GROUPS_M * GROUP_ROWS + thread / 32 * 16 + lane / 4) * TILE_N
                  + group / GROUPS_M * GROUP_COLUMNS + lane % 4 * 2;
#pragma unroll
    for (int block = 0; block < ROW_BLOCKS; ++block)
#pragma unroll
        for (int i = 0; i < GROUP_COLUMNS / 8; ++i) {
            float *d = &sums[block][4 * i], *to = slot + 64 * block * TILE_N + 8 * i;
            *(float2 *)to = make_float2(d[0], d[1]);
            *(float2 *)(to + 8 * TILE_N) = make_float2(d[2], d[3]);
        }
}

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Which shares hold steps of a tile: `first` to `last`. Share i holds step u when i all / shares, rounded down, is at most u, and that
// of i + 1 is not.
struct Holders {
    int first, last;
    __device__ __forceinline__ Holders(int tiles, int steps, int shares, int tile) {
        u64 all = (u64)tiles * steps, low = ((u64)tile * steps + 1) * shares - 1, high = (u64)(tile + 1) * steps * shares - 1;
        // 64-bit divisions are slow, and rarely needed.
        if (high >> 32) {
            first = (int)(low / all);
            last = (int)(high / all);
        } else {
            first = (u32)low / (u32)all;
            last = (u32)high / (u32)all;
        }
    }
};

// Adds every slices-th slot of one place in a tile, from the slice-th on. E is float or float4.
template <class E>
__device__ __forceinline__ E sum_slots(const float *slots, const Holders &holders, int tile, int row, int column, int slice, int slices) {
    const float *from = slots + ((i64)tile * TILE_M + row) * TILE_N + column;
    E sum = {};
#pragma unroll 4
    for (int i = holders.first + slice; i <= holders.last; i += slices) sum = plus(sum, *(const E *)(from + (i64)i * (TILE_M * TILE_N)));
    return sum;
}
#endif
