// A matrix product's tile on ordinary arithmetic units.
//
// A block computes M × N sums, a thread ThreadM × ThreadN of them. Operands lie in shared memory as the arithmetic wants
// them, a row for each depth: f32 whose quads stay together is copied there on its own, the rest goes through registers,
// turned and widened on the way.
#pragma once
#include "pipeline.cuh"

// Which quads of an operand's step of Lines × Depths a thread moves, and where their values go. Quads lie along the depth:
// two lanes share a row's 32 bytes, so that whole sectors are read and the transposing stores of a warp hit 32 different
// banks.
template <int Lines, int Depths, int Threads> struct QuadsAlongDepth {
    static constexpr int LENGTH = 4, DEPTH = Depths;
    // Copies of single values would be four times as many, and memory's queue shorter than that.
    static constexpr bool TOGETHER = false;
    static constexpr int TOTAL = Lines * DEPTH / 4, LOADS = (TOTAL + Threads - 1) / Threads;
    // All loads of a thread are at the same depth unless slices make the step deeper.
    static constexpr bool ONE_DEPTH = DEPTH == 8;
    static __device__ __forceinline__ int element(int load) { return threadIdx.x + load * Threads; }
    // False for the threads that a small step leaves without work.
    static __device__ __forceinline__ bool moves(int load) { return TOTAL % Threads == 0 || element(load) < TOTAL; }
    static __device__ __forceinline__ int line(int load) { return (element(load) >> 1) % Lines; }
    static __device__ __forceinline__ int depth(int load) {
        return ((element(load) & 1) | ((element(load) / (2 * Lines)) << 1)) * 4;
    }
    static __device__ __forceinline__ int place(int load, int j) { return (depth(load) + j) * (Lines + 4) + line(load); }
    template <class A> static __device__ __forceinline__ void store(A *stage, int load, const A (&values)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) stage[place(load, j)] = values[j];
    }
};

// Quads lie across the depth, as the arithmetic wants them.
template <int Lines, int Depths, int Threads> struct QuadsAcrossDepth {
    static constexpr int LENGTH = 4, DEPTH = Depths;
    static constexpr bool TOGETHER = true;
    static constexpr int TOTAL = Lines * DEPTH / 4, LOADS = (TOTAL + Threads - 1) / Threads;
    static __device__ __forceinline__ int element(int load) { return threadIdx.x + load * Threads; }
    static __device__ __forceinline__ bool moves(int load) { return TOTAL % Threads == 0 || element(load) < TOTAL; }
    static __device__ __forceinline__ int line(int load) { return element(load) % (Lines / 4) * 4; }
    static __device__ __forceinline__ int depth(int load) { return element(load) / (Lines / 4); }
    static __device__ __forceinline__ int place(int load, int j) { return depth(load) * (Lines + 4) + line(load) + j; }
    template <class A> static __device__ __forceinline__ void store(A *stage, int load, const A (&values)[4]) {
        Quad<A> quad;
#pragma unroll
        for (int j = 0; j < 4; j++) quad.at[j] = values[j];
        *(Quad<A> *)&stage[place(load, 0)] = quad;
    }
};

// A: the type of the sums. Slices groups of threads share a block's sums, each with a part of every step's depth: small
// products need the threads more than the sums.
// LeftAcross, RightAcross: how the operands' quads lie in memory.
template <class A, int TileM, int TileN, int ThreadM, int ThreadN, int Slices, bool LeftAcross, bool RightAcross> struct Product {
    typedef A Element;
    static constexpr int M = TileM, N = TileN;
    static constexpr int STEP_PARTS = 8, DEPTH = STEP_PARTS * Slices;
    static constexpr int SLICE_THREADS = (M / ThreadM) * (N / ThreadN), THREADS = SLICE_THREADS * Slices;
    // Four more columns than needed turn the transposing stores of `AlongDepth` to different banks.
    static constexpr int PITCH_M = M + 4, PITCH_N = N + 4;
    static constexpr int GROUPS_M = ThreadM / 4, GROUPS_N = ThreadN / 4;
    static constexpr int WARPS_N = N / (4 * ThreadN);
    static_assert(M % (8 * ThreadM) == 0 && N % (4 * ThreadN) == 0, "a warp is 8 by 4 threads");

    typedef typename Choose<LeftAcross, QuadsAcrossDepth<M, DEPTH, THREADS>, QuadsAlongDepth<M, DEPTH, THREADS>>::type Left;
    typedef typename Choose<RightAcross, QuadsAcrossDepth<N, DEPTH, THREADS>, QuadsAlongDepth<N, DEPTH, THREADS>>::type Right;

    struct Stage {
        A left[DEPTH * PITCH_M];
        A right[DEPTH * PITCH_N];
    };
    // Two steps are on their way while a third is multiplied.
    static constexpr int STAGES = Same<A, float>::value ? 3 : 2;
    union Shared {
        Stage stages[STAGES];
        A slices[Slices > 1 ? Slices - 1 : 1][Slices > 1 ? ThreadM * ThreadN : 1][SLICE_THREADS];
    };

    A sum[ThreadM * ThreadN];
    int slice, row, column;

    __device__ __forceinline__ Product() {
        const int thread = threadIdx.x % SLICE_THREADS, warp = thread / 32, lane = thread % 32;
        slice = threadIdx.x / SLICE_THREADS;
        // Lanes i and i^1 read the same quad of the left operand, i and i^2 the same of the right one: then 16-byte
        // reads from shared memory need half the cycles.
        row = (warp / WARPS_N) * 32 + ((lane >> 1) & 7) * 4;
        column = (warp % WARPS_N) * 16 + ((lane & 1) | ((lane >> 4) << 1)) * 4;
#pragma unroll
        for (int i = 0; i < ThreadM * ThreadN; i++) sum[i] = A(0);
    }

    // The row of sum[i][.] and the column of sum[.][j] within the tile.
    __device__ __forceinline__ int row_of(int i) const { return (i / 4) * (M / GROUPS_M) + row + i % 4; }
    __device__ __forceinline__ int column_of(int j) const { return (j / 4) * (N / GROUPS_N) + column + j % 4; }

    // The left operand's value in a step.
    static __device__ __forceinline__ A left_at(const Stage &stage, int line, int depth) { return stage.left[depth * PITCH_M + line]; }

    // What a thread multiplies at one depth.
    struct Fragments {
        Quad<A> left[GROUPS_M], right[GROUPS_N];
    };

    __device__ __forceinline__ void read(Fragments &to, const Stage &stage, int part) const {
        const int k = slice * STEP_PARTS + part;
#pragma unroll
        for (int i = 0; i < GROUPS_M; i++) to.left[i] = *(const Quad<A> *)&stage.left[k * PITCH_M + i * (M / GROUPS_M) + row];
#pragma unroll
        for (int j = 0; j < GROUPS_N; j++) to.right[j] = *(const Quad<A> *)&stage.right[k * PITCH_N + j * (N / GROUPS_N) + column];
    }

    __device__ __forceinline__ void multiply(const Fragments &by) {
#pragma unroll
        for (int i = 0; i < ThreadM; i++)
#pragma unroll
            for (int j = 0; j < ThreadN; j++) sum[i * ThreadN + j] += by.left[i / 4].at[i % 4] * by.right[j / 4].at[j % 4];
    }

    __device__ __forceinline__ void add_slices(Shared &shared) {
        if constexpr (Slices > 1) ::add_slices(sum, shared.slices, slice);
    }

    // Calls `write(row of the tile, first column of four, values)` for all results.
    template <class Write> __device__ __forceinline__ void for_each_quad(Write write) {
        if (slice > 0) return;
#pragma unroll
        for (int i = 0; i < ThreadM; i++)
#pragma unroll
            for (int j = 0; j < GROUPS_N; j++) {
                Quad<A> values;
#pragma unroll
                for (int l = 0; l < 4; l++) values.at[l] = sum[i * ThreadN + 4 * j + l];
                write(row_of(i), column_of(4 * j), values);
            }
    }
};
