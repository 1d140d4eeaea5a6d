// The main loop of a matrix product on ordinary arithmetic units: every pass of a convolution and the product itself use
// it, each with its own way to fetch the operands.
//
// A block computes M × N sums, a thread ThreadM × ThreadN of them. Operands go through registers into shared
// memory, one step ahead of the arithmetic, and are widened on the way: 16-bit images and f64 use the same code.
#pragma once
#include "prelude.cuh"

// Four neighbours in memory, read at once where their address allows it.
template <class T> struct __align__(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) Quad { T at[4]; };

// Reads the first `count` of four values, the rest as zeros. Vector promises an aligned address and a count that is
// either at least 4 or at most 0.
template <bool Vector, class T, class A> __device__ __forceinline__ void read_quad(A (&to)[4], const T *from, int count) {
    if (Vector) {
        if (count > 0) {
            const Quad<T> quad = *(const Quad<T> *)from;
#pragma unroll
            for (int j = 0; j < 4; j++) to[j] = widen(quad.at[j]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) to[j] = A(0);
        }
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) to[j] = j < count ? A(widen(from[j])) : A(0);
    }
}

// A: the type of the sums. Slices groups of threads share a block's sums, each with a part of every step's depth: small
// products need the threads more than the sums.
template <class A, int TileM, int TileN, int ThreadM, int ThreadN, int Slices> struct Product {
    static constexpr int M = TileM, N = TileN;
    static constexpr int SLICE_DEPTH = 8, DEPTH = SLICE_DEPTH * Slices;
    static constexpr int SLICE_THREADS = (M / ThreadM) * (N / ThreadN), THREADS = SLICE_THREADS * Slices;
    // Four more columns than needed turn the transposing stores of `AlongDepth` to different banks.
    static constexpr int PITCH_M = M + 4, PITCH_N = N + 4;
    static constexpr int GROUPS_M = ThreadM / 4, GROUPS_N = ThreadN / 4;
    static constexpr int WARPS_N = N / (4 * ThreadN);
    static_assert(M % (8 * ThreadM) == 0 && N % (4 * ThreadN) == 0, "a warp is 8 by 4 threads");

    struct Stage {
        A left[DEPTH][PITCH_M];
        A right[DEPTH][PITCH_N];
    };
    union Shared {
        Stage stages[2];
        A slices[Slices > 1 ? Slices - 1 : 1][Slices > 1 ? ThreadM * ThreadN : 1][SLICE_THREADS];
    };

    A sum[ThreadM][ThreadN];
    int slice, row, column;

    __device__ __forceinline__ Product() {
        const int thread = threadIdx.x % SLICE_THREADS, warp = thread / 32, lane = thread % 32;
        slice = threadIdx.x / SLICE_THREADS;
        // Lanes i and i^1 read the same quad of the left operand, i and i^2 the same of the right one: then 16-byte
        // reads from shared memory need half the cycles.
        row = (warp / WARPS_N) * 32 + ((lane >> 1) & 7) * 4;
        column = (warp % WARPS_N) * 16 + ((lane & 1) | ((lane >> 4) << 1)) * 4;
#pragma unroll
        for (int i = 0; i < ThreadM; i++)
#pragma unroll
            for (int j = 0; j < ThreadN; j++) sum[i][j] = A(0);
    }

    // The row of sum[i] and the column of sum[.][j] within the tile.
    __device__ __forceinline__ int row_of(int i) const { return (i / 4) * (M / GROUPS_M) + row + i % 4; }
    __device__ __forceinline__ int column_of(int j) const { return (j / 4) * (N / GROUPS_N) + column + j % 4; }

    // What a thread multiplies at one depth.
    struct Fragments {
        Quad<A> left[GROUPS_M], right[GROUPS_N];
    };

    __device__ __forceinline__ void read(Fragments &to, const Stage &stage, int depth) const {
        const int k = slice * SLICE_DEPTH + depth;
#pragma unroll
        for (int i = 0; i < GROUPS_M; i++) to.left[i] = *(const Quad<A> *)&stage.left[k][i * (M / GROUPS_M) + row];
#pragma unroll
        for (int j = 0; j < GROUPS_N; j++) to.right[j] = *(const Quad<A> *)&stage.right[k][j * (N / GROUPS_N) + column];
    }

    __device__ __forceinline__ void multiply(const Fragments &by) {
#pragma unroll
        for (int i = 0; i < ThreadM; i++)
#pragma unroll
            for (int j = 0; j < ThreadN; j++) sum[i][j] += by.left[i / 4].at[i % 4] * by.right[j / 4].at[j % 4];
    }

    template <class Left, class Right>
    __device__ __forceinline__ void accumulate(Left &left, Right &right, int steps, Shared &shared) {
        accumulate(left, right, steps, shared, [](const Stage &) {});
    }

    // Sums `steps` steps of DEPTH. The operands know where they are: each fetch is one step further. `look` sees each
    // step's operands while they are in shared memory.
    //
    // Everything is on its way one turn before it is needed: operands from memory during the step before, fragments from
    // shared memory during the depth before. The barrier stands before a step's last products, which then hide the first
    // reads of the next step.
    template <class Left, class Right, class Look>
    __device__ __forceinline__ void accumulate(Left &left, Right &right, int steps, Shared &shared, Look look) {
        if (steps > 0) {
            Fragments fragments[2];
            left.fetch();
            right.fetch();
            left.store(&shared.stages[0].left[0][0]);
            right.store(&shared.stages[0].right[0][0]);
            __syncthreads();
            read(fragments[0], shared.stages[0], 0);
            for (int step = 0; step < steps; step++) {
                const Stage &stage = shared.stages[step & 1];
                Stage &next = shared.stages[(step + 1) & 1];
                const bool more = step + 1 < steps;
                if (more) {
                    left.fetch();
                    right.fetch();
                }
#pragma unroll
                for (int depth = 0; depth < SLICE_DEPTH; depth++) {
                    if (depth + 1 < SLICE_DEPTH) {
                        read(fragments[(depth + 1) & 1], stage, depth + 1);
                    } else {
                        look(stage);
                        if (more) {
                            left.store(&next.left[0][0]);
                            right.store(&next.right[0][0]);
                        }
                        __syncthreads();
                        if (more) read(fragments[0], next, 0);
                    }
                    multiply(fragments[depth & 1]);
                }
            }
        }
        if (Slices > 1) {
            __syncthreads();
            add_slices(shared);
        }
    }

    // Adds the slices in their order; the first one's threads have the result.
    __device__ __forceinline__ void add_slices(Shared &shared) {
        const int thread = threadIdx.x % SLICE_THREADS;
        if (slice > 0) {
#pragma unroll
            for (int i = 0; i < ThreadM; i++)
#pragma unroll
                for (int j = 0; j < ThreadN; j++) shared.slices[slice - 1][i * ThreadN + j][thread] = sum[i][j];
        }
        __syncthreads();
        if (slice == 0) {
            for (int other = 1; other < Slices; other++)
#pragma unroll
                for (int i = 0; i < ThreadM; i++)
#pragma unroll
                    for (int j = 0; j < ThreadN; j++) sum[i][j] += shared.slices[other - 1][i * ThreadN + j][thread];
        }
    }

    // Calls `write(row of the tile, first column of four, values)` for all results.
    template <class Write> __device__ __forceinline__ void for_each_quad(Write write) {
        if (slice > 0) return;
#pragma unroll
        for (int i = 0; i < ThreadM; i++)
#pragma unroll
            for (int j = 0; j < GROUPS_N; j++) {
                A values[4];
#pragma unroll
                for (int l = 0; l < 4; l++) values[l] = sum[i][4 * j + l];
                write(row_of(i), column_of(4 * j), values);
            }
    }
};

// Which quads of an operand's WIDTH × DEPTH step a thread moves. Quads lie along the depth: two lanes share a row's 32
// bytes, so that whole sectors are read and the transposing stores of a warp hit 32 different banks.
template <int WIDTH, int DEPTH, int THREADS> struct QuadsAlongDepth {
    static constexpr int TOTAL = WIDTH * DEPTH / 4, LOADS = (TOTAL + THREADS - 1) / THREADS;
    // False for the threads that a small step leaves without work.
    static __device__ __forceinline__ bool moves(int load) { return TOTAL % THREADS == 0 || element(load) < TOTAL; }
    static __device__ __forceinline__ int element(int load) { return threadIdx.x + load * THREADS; }
    static __device__ __forceinline__ int line(int load) { return (element(load) >> 1) % WIDTH; }
    static __device__ __forceinline__ int depth(int load) {
        return ((element(load) & 1) | ((element(load) / (2 * WIDTH)) << 1)) * 4;
    }
    template <class A> static __device__ __forceinline__ void store(A *stage, const A (&held)[LOADS][4]) {
#pragma unroll
        for (int load = 0; load < LOADS; load++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (moves(load)) stage[(depth(load) + j) * (WIDTH + 4) + line(load)] = held[load][j];
    }
};

// Quads lie across the depth, as the arithmetic wants them.
template <int WIDTH, int DEPTH, int THREADS> struct QuadsAcrossDepth {
    static constexpr int TOTAL = WIDTH * DEPTH / 4, LOADS = (TOTAL + THREADS - 1) / THREADS;
    // False for the threads that a small step leaves without work.
    static __device__ __forceinline__ bool moves(int load) { return TOTAL % THREADS == 0 || element(load) < TOTAL; }
    static __device__ __forceinline__ int element(int load) { return threadIdx.x + load * THREADS; }
    static __device__ __forceinline__ int line(int load) { return element(load) % (WIDTH / 4) * 4; }
    static __device__ __forceinline__ int depth(int load) { return element(load) / (WIDTH / 4); }
    template <class A> static __device__ __forceinline__ void store(A *stage, const A (&held)[LOADS][4]) {
#pragma unroll
        for (int load = 0; load < LOADS; load++) {
            Quad<A> quad;
#pragma unroll
            for (int j = 0; j < 4; j++) quad.at[j] = held[load][j];
            if (moves(load)) *(Quad<A> *)&stage[depth(load) * (WIDTH + 4) + line(load)] = quad;
        }
    }
};

// A matrix whose depth is contiguous: lines of `pitch` elements, of which `lines` exist, read from depth `begin` to `end`.
template <class T, class A, int WIDTH, int DEPTH, int THREADS, bool Vector> struct AlongDepth {
    typedef QuadsAlongDepth<WIDTH, DEPTH, THREADS> Quads;
    const T *at[Quads::LOADS];
    int remaining[Quads::LOADS];
    A held[Quads::LOADS][4];

    __device__ __forceinline__ AlongDepth(const T *matrix, i64 first_line, i64 lines, i64 pitch, int begin, int end) {
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            const i64 line = first_line + Quads::line(load);
            const int depth = begin + Quads::depth(load);
            at[load] = matrix + line * pitch + depth;
            remaining[load] = Quads::moves(load) && line < lines ? end - depth : 0;
        }
    }
    __device__ __forceinline__ void fetch() {
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            read_quad<Vector>(held[load], at[load], remaining[load]);
            at[load] += DEPTH;
            remaining[load] -= DEPTH;
        }
    }
    __device__ __forceinline__ void store(A *stage) { Quads::store(stage, held); }
};

// A matrix whose lines are contiguous: at each depth `lines` elements, `pitch` apart from the next depth's.
template <class T, class A, int WIDTH, int DEPTH, int THREADS, bool Vector> struct AcrossDepth {
    typedef QuadsAcrossDepth<WIDTH, DEPTH, THREADS> Quads;
    const T *at[Quads::LOADS];
    int remaining[Quads::LOADS], count[Quads::LOADS];
    i64 step;
    A held[Quads::LOADS][4];

    __device__ __forceinline__ AcrossDepth(const T *matrix, i64 first_line, i64 lines, i64 pitch, i64 begin, i64 end) {
        step = pitch * DEPTH;
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            const i64 line = first_line + Quads::line(load), depth = begin + Quads::depth(load);
            at[load] = matrix + depth * pitch + line;
            remaining[load] = Quads::moves(load) ? (int)(end - depth) : 0;
            count[load] = (int)(lines - line < 4 ? lines - line : 4);
        }
    }
    __device__ __forceinline__ void fetch() {
#pragma unroll
        for (int load = 0; load < Quads::LOADS; load++) {
            read_quad<Vector>(held[load], at[load], remaining[load] > 0 ? count[load] : 0);
            at[load] += step;
            remaining[load] -= DEPTH;
        }
    }
    __device__ __forceinline__ void store(A *stage) { Quads::store(stage, held); }
};
