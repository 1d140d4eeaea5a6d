// A matrix product's tile on tensor cores: 16-bit operands, f32 sums, on every GPU from Ampere on.
//
// A block computes M × N sums, a warp WarpM × WarpN of them by products of 16 × 16 with 16 × 8 matrices. Operands lie in
// shared memory as they lie in memory, so that they are copied there on their own wherever pieces of four bytes or more
// stay together; the reads from shared memory turn them where the tensor cores want it.
#pragma once
#include "pipeline.cuh"

__device__ __forceinline__ void tensor_multiply(float *sums, const u32 *left, const u32 *right, f16) { mma_f16(sums, left, right); }
__device__ __forceinline__ void tensor_multiply(float *sums, const u32 *left, const u32 *right, bf16) { mma_bf16(sums, left, right); }

// Rows of `Length` elements in shared memory, in runs of 8. A warp reads 8 runs of 8 successive rows at a time: runs change
// places within their row, so that the 8 lie in different banks.
template <int Length> struct Swizzled {
    static constexpr int RUNS = Length / 8;
    static_assert(RUNS >= 4 && (RUNS & (RUNS - 1)) == 0, "rows of 64 bytes or more fill all banks");
    static __device__ __forceinline__ int place(int row, int run) {
        return row * Length + (run ^ (RUNS >= 8 ? row % 8 : row / 2 % 4)) * 8;
    }
};

// Which runs of an operand's step of Lines × Depths a thread moves, and where they go. A row is a line when runs lie along
// the depth, and a depth when they lie across it.
template <int Lines, int Depths, int Threads, bool Across> struct Eights {
    static constexpr int LENGTH = 8, DEPTH = Depths;
    static constexpr bool TOGETHER = true, ACROSS = Across;
    static constexpr int ROW = Across ? Lines : DEPTH, RUNS = ROW / 8;
    static constexpr int TOTAL = Lines * DEPTH / 8, LOADS = (TOTAL + Threads - 1) / Threads;
    static_assert(Threads % RUNS == 0 && (TOTAL < Threads || TOTAL % Threads == 0), "threads share the runs evenly");
    static constexpr bool ONE_DEPTH = true;
    // Across the depth, a thread's runs are in one row, so that it has one pixel or depth to follow; along it, they are at
    // one depth, neighbouring threads' runs side by side.
    static constexpr int ROW_THREADS = Across && RUNS >= LOADS ? RUNS / LOADS : RUNS;
    static __device__ __forceinline__ bool moves(int load) { return TOTAL % Threads == 0 || (int)threadIdx.x + load * Threads < TOTAL; }
    static __device__ __forceinline__ int row(int load) { return threadIdx.x / ROW_THREADS + (ROW_THREADS == RUNS ? load * (Threads / RUNS) : 0); }
    static __device__ __forceinline__ int run(int load) { return threadIdx.x % ROW_THREADS + (ROW_THREADS == RUNS ? 0 : load * ROW_THREADS); }
    static __device__ __forceinline__ int line(int load) { return Across ? run(load) * 8 : row(load); }
    static __device__ __forceinline__ int depth(int load) { return Across ? row(load) : run(load) * 8; }
    // Where a value lies in the operand's step.
    static __device__ __forceinline__ int at(int line, int depth) {
        return Across ? Swizzled<ROW>::place(depth, line / 8) + line % 8 : Swizzled<ROW>::place(line, depth / 8) + depth % 8;
    }
    static __device__ __forceinline__ int place(int load, int j) {
        return Swizzled<ROW>::place(row(load), run(load)) + j;
    }
    template <class T> static __device__ __forceinline__ void store(T *stage, int load, const T (&values)[8]) {
        Piece<T, 8> run;
#pragma unroll
        for (int j = 0; j < 8; j++) run.at[j] = values[j];
        *(Piece<T, 8> *)&stage[place(load, 0)] = run;
    }
};

// T: the type of the operands. Slices groups of warps share a block's sums, each with a part of every step's depth.
// LeftAcross, RightAcross: how the operands' runs lie.
template <class T, int TileM, int TileN, int WarpM, int WarpN, int Slices, bool LeftAcross, bool RightAcross> struct TensorProduct {
    typedef T Element;
    static constexpr int M = TileM, N = TileN;
    static constexpr int DEPTH = Slices > 2 ? 16 * Slices : 32, STEP_PARTS = DEPTH / 16 / Slices;
    static constexpr int SLICE_THREADS = 32 * (M / WarpM) * (N / WarpN), THREADS = SLICE_THREADS * Slices;
    static constexpr int MATRICES_M = WarpM / 16, MATRICES_N = WarpN / 8;
    static constexpr int SUMS = MATRICES_M * MATRICES_N * 4;
    static_assert(WarpM % 16 == 0 && WarpN % 16 == 0 && M % WarpM == 0 && N % WarpN == 0, "warps multiply whole matrices");

    typedef Eights<M, DEPTH, THREADS, LeftAcross> Left;
    typedef Eights<N, DEPTH, THREADS, RightAcross> Right;

    struct __align__(128) Stage {
        T left[M * DEPTH];
        T right[N * DEPTH];
    };
    // As many as fit the shared memory that every block has, but no more than hide the way from memory.
    static constexpr int FITTING = (48 << 10) / (int)sizeof(Stage), STAGES = FITTING < 4 ? FITTING : DEPTH > 32 ? 3 : 4;
    static_assert(STAGES >= 3, "one step is multiplied, two are on their way");
    union Shared {
        Stage stages[STAGES];
        float slices[Slices > 1 ? Slices - 1 : 1][Slices > 1 ? SUMS : 1][SLICE_THREADS];
    };

    float sum[SUMS];
    int slice, row, column;

    __device__ __forceinline__ TensorProduct() {
        const int warp = threadIdx.x % SLICE_THREADS / 32;
        slice = threadIdx.x / SLICE_THREADS;
        row = warp / (N / WarpN) * WarpM;
        column = warp % (N / WarpN) * WarpN;
#pragma unroll
        for (int i = 0; i < SUMS; i++) sum[i] = 0.0f;
    }

    // The left operand's value in a step.
    static __device__ __forceinline__ T left_at(const Stage &stage, int line, int depth) { return stage.left[Left::at(line, depth)]; }

    // What a warp multiplies at one depth of 16: a thread's share of each matrix.
    struct Fragments {
        u32 left[MATRICES_M][4];
        u32 right[MATRICES_N / 2][4];
    };

    __device__ __forceinline__ void read(Fragments &to, const Stage &stage, int part) const {
        const int depth = (part * Slices + slice) * 16;
        // Each group of 8 lanes names the rows of a quarter of a 16 × 16 matrix, in the order that registers want them:
        // lines first for the left operand, depths first for the right one.
        const int lane = threadIdx.x % 32, within = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
#pragma unroll
        for (int i = 0; i < MATRICES_M; i++) {
            const int line = row + i * 16 + first;
            if constexpr (LeftAcross) ldmatrix_x4_transposed(to.left[i], &stage.left[Left::at(line, depth + second + within)]);
            else ldmatrix_x4(to.left[i], &stage.left[Left::at(line + within, depth + second)]);
        }
#pragma unroll
        for (int j = 0; j < MATRICES_N; j += 2) {
            const int line = column + j * 8 + second;
            if constexpr (RightAcross) ldmatrix_x4_transposed(to.right[j / 2], &stage.right[Right::at(line, depth + first + within)]);
            else ldmatrix_x4(to.right[j / 2], &stage.right[Right::at(line + within, depth + first)]);
        }
    }

    __device__ __forceinline__ void multiply(const Fragments &by) {
#pragma unroll
        for (int i = 0; i < MATRICES_M; i++)
#pragma unroll
            for (int j = 0; j < MATRICES_N; j++)
                tensor_multiply(&sum[(i * MATRICES_N + j) * 4], by.left[i], &by.right[j / 2][j % 2 * 2], T());
    }

    __device__ __forceinline__ void add_slices(Shared &shared) {
        if constexpr (Slices > 1) ::add_slices(sum, shared.slices, slice);
    }

    // Calls `write(row of the tile, first column of four, values)` for all results. A thread has two neighbours of a row and
    // two of the eighth row below: pairs of threads exchange them for four of one row.
    template <class Write> __device__ __forceinline__ void for_each_quad(Write write) {
        if (slice > 0) return;
        const int lane = threadIdx.x % 32, odd = lane & 1;
#pragma unroll
        for (int i = 0; i < MATRICES_M; i++)
#pragma unroll
            for (int j = 0; j < MATRICES_N; j++) {
                const float *const mine = &sum[(i * MATRICES_N + j) * 4];
                const float given[2] = {odd ? mine[0] : mine[2], odd ? mine[1] : mine[3]};
                const float taken[2] = {__shfl_xor_sync(FULL_WARP, given[0], 1), __shfl_xor_sync(FULL_WARP, given[1], 1)};
                Quad<float> values;
#pragma unroll
                for (int l = 0; l < 2; l++) {
                    values.at[l] = odd ? taken[l] : mine[l];
                    values.at[2 + l] = odd ? mine[2 + l] : taken[l];
                }
                write(row + i * 16 + lane / 4 + odd * 8, column + j * 8 + lane % 4 / 2 * 4, values);
            }
    }
};
