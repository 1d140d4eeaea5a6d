// How the operands of a matrix product come to the arithmetic: the ways to read them, the copies into shared memory, and
// the loop that keeps both busy. A tile (product.cuh, tensor_product.cuh) says how a step's operands lie in shared memory,
// as runs of neighbours, and what is done with them.
#pragma once
#include "prelude.cuh"

// Neighbours in memory, read at once where their address allows it.
template <class T, int N> struct __align__(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Piece { T at[N]; };
template <class T> using Quad = Piece<T, 4>;

template <class X, class Y> struct Same { static constexpr bool value = false; };
template <class X> struct Same<X, X> { static constexpr bool value = true; };

template <bool FIRST, class X, class Y> struct Choose { typedef X type; };
template <class X, class Y> struct Choose<false, X, Y> { typedef Y type; };

// Writes the first `count` of four values; `vector` promises an aligned address and a count of at least 4.
template <class T> __device__ __forceinline__ void write_quad(T *to, const Quad<T> &quad, int count, bool vector) {
    if (vector) {
        *(Quad<T> *)to = quad;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < count) to[j] = quad.at[j];
    }
}

// The value as the tile keeps it in shared memory.
template <class E, class T> __device__ __forceinline__ E staged(T x) {
    if constexpr (Same<E, T>::value) return x;
    else return E(widen(x));
}

// Sums `steps` steps of a tile's DEPTH. The operands know where they are: each copy is one step further. `look` sees each
// step's operands while they are in shared memory.
//
// Everything is on its way before it is needed: operands from memory for a step or more, fragments from shared memory
// during the part of a step before. The barrier stands before a step's last products, which then hide the first reads of
// the next step.
template <class Tile, class Left, class Right, class Look>
__device__ __forceinline__ void accumulate(Tile &tile, Left &left, Right &right, int steps, typename Tile::Shared &shared, Look look) {
    typedef typename Tile::Stage Stage;
    constexpr int STAGES = Tile::STAGES, PARTS = Tile::STEP_PARTS;
    if (steps > 0) {
        typename Tile::Fragments fragments[2];
        left.begin(shared.stages[0].left);
        right.begin(shared.stages[0].right);
        cp_async_commit();
        left.end(shared.stages[0].left);
        right.end(shared.stages[0].right);
        left.begin_late();
        right.begin_late();
        // Copies that need no registers are further ahead.
#pragma unroll
        for (int stage = 1; stage < STAGES - 1; stage++) {
            left.begin_early(shared.stages[stage].left);
            right.begin_early(shared.stages[stage].right);
            cp_async_commit();
        }
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        tile.read(fragments[0], shared.stages[0], 0);
        int current = 0;
        for (int step = 0; step < steps; step++) {
            const int following = current + 1 < STAGES ? current + 1 : 0, last = following + STAGES - 2 < STAGES ? following + STAGES - 2 : following - 2;
            Stage &stage = shared.stages[current], &next = shared.stages[following];
            // Also in the last steps, where nothing is read: a branch would let the compiler move reads to their use.
            left.begin_early(shared.stages[last].left);
            right.begin_early(shared.stages[last].right);
            cp_async_commit();
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                // What goes through registers is read a whole step before it is stored: reads and stores half way
                // keep the compiler from bringing the two together.
                if (part == PARTS / 2) {
                    left.end(next.left);
                    right.end(next.right);
                    left.begin_late();
                    right.begin_late();
                }
                if (part + 1 < PARTS) {
                    tile.read(fragments[(part + 1) & 1], stage, part + 1);
                } else {
                    look(stage);
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    if (PARTS > 1) tile.read(fragments[0], next, 0);
                }
                tile.multiply(fragments[part & 1]);
                if (PARTS == 1) tile.read(fragments[0], next, 0);
            }
            current = following;
        }
        cp_async_wait<0>();
    }
    tile.add_slices(shared);
}

template <class Tile, class Left, class Right>
__device__ __forceinline__ void accumulate(Tile &tile, Left &left, Right &right, int steps, typename Tile::Shared &shared) {
    accumulate(tile, left, right, steps, shared, [](const typename Tile::Stage &) {});
}

// Adds what several groups of threads summed, in their order; the first group's threads have the result.
template <class A, int Count, int Others, int Threads>
__device__ __forceinline__ void add_slices(A (&sum)[Count], A (&room)[Others][Count][Threads], int slice) {
    const int thread = threadIdx.x % Threads;
    __syncthreads();
    if (slice > 0) {
#pragma unroll
        for (int i = 0; i < Count; i++) room[slice - 1][i][thread] = sum[i];
    }
    __syncthreads();
    if (slice == 0) {
        for (int other = 0; other < Others; other++)
#pragma unroll
            for (int i = 0; i < Count; i++) sum[i] += room[other][i][thread];
    }
}

// Moves an operand into shared memory, step by step. The source says what: its `advance(piece)` calls, for each load of
// this thread, `piece(load, j, address, real)` for each `PIECE_SIZE` of a run's values, the first of which is number j: they are
// neighbours at an aligned address. Not `real` are zeros. E: the type in shared memory.
template <class Source, class T, class E> struct Mover {
    typedef typename Source::Runs Runs;
    static constexpr int PIECE_SIZE = Source::PIECE_SIZE, BYTES = PIECE_SIZE * sizeof(T);
    // What needs no conversion and no turning is copied without passing through registers.
    static constexpr bool ASYNC = Runs::TOGETHER && Same<T, E>::value && sizeof(T) < 8 && BYTES >= 4;
    Source source;
    E held[ASYNC ? 1 : Runs::LOADS][Runs::LENGTH];

    __device__ __forceinline__ Mover(const Source &source) : source(source) {}

    __device__ __forceinline__ void begin_early(E *stage) {
        if constexpr (ASYNC)
            source.advance([&](int load, int j, const T *from, bool real) {
                if (!Runs::moves(load)) return;
                E *const to = stage + Runs::place(load, j);
                if constexpr (BYTES == 16) cp_async_16(to, from, real);
                else if constexpr (BYTES == 8) cp_async_8(to, from, real);
                else cp_async_4(to, from, real);
            });
    }
    __device__ __forceinline__ void begin_late() {
        if constexpr (!ASYNC)
            source.advance([&](int load, int j, const T *from, bool real) {
                Piece<T, PIECE_SIZE> piece = {};
                if (real) piece = *(const Piece<T, PIECE_SIZE> *)from;
#pragma unroll
                for (int l = 0; l < PIECE_SIZE; l++) held[load][j + l] = real ? staged<E>(piece.at[l]) : E{};
            });
    }
    __device__ __forceinline__ void begin(E *stage) {
        begin_early(stage);
        begin_late();
    }
    __device__ __forceinline__ void end(E *stage) {
        if constexpr (!ASYNC)
#pragma unroll
            for (int load = 0; load < Runs::LOADS; load++)
                if (Runs::moves(load)) Runs::store(stage, load, held[load]);
    }
};

// A matrix whose depth is contiguous: lines of `pitch` elements, of which `lines` exist, read from depth `begin` to `end`.
// Pieces are aligned, and the end is at the end of one.
template <class T, class Layout, int Size> struct AlongDepth {
    typedef Layout Runs;
    static constexpr int PIECE_SIZE = Size;
    const T *at[Runs::LOADS];
    int remaining[Runs::LOADS];

    __device__ __forceinline__ AlongDepth(const T *matrix, i64 first_line, i64 lines, i64 pitch, int begin, int end) {
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
            const i64 line = first_line + Runs::line(load);
            const int depth = begin + Runs::depth(load);
            at[load] = matrix + line * pitch + depth;
            remaining[load] = Runs::moves(load) && line < lines ? end - depth : 0;
        }
    }
    template <class OnPiece> __device__ __forceinline__ void advance(OnPiece piece) {
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
#pragma unroll
            for (int j = 0; j < Runs::LENGTH; j += PIECE_SIZE) piece(load, j, at[load] + j, remaining[load] > j);
            at[load] += Runs::DEPTH;
            remaining[load] -= Runs::DEPTH;
        }
    }
};

// A matrix whose lines are contiguous: at each depth `lines` elements, `pitch` apart from the next depth's.
template <class T, class Layout, int Size> struct AcrossDepth {
    typedef Layout Runs;
    static constexpr int PIECE_SIZE = Size;
    const T *at[Runs::LOADS];
    int remaining[Runs::LOADS], count[Runs::LOADS];
    i64 step;

    __device__ __forceinline__ AcrossDepth(const T *matrix, i64 first_line, i64 lines, i64 pitch, i64 begin, i64 end) {
        step = pitch * Runs::DEPTH;
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
            const i64 line = first_line + Runs::line(load), depth = begin + Runs::depth(load);
            at[load] = matrix + depth * pitch + line;
            count[load] = (int)(lines - line < Runs::LENGTH ? lines - line : Runs::LENGTH);
            remaining[load] = Runs::moves(load) && count[load] > 0 ? (int)(end - depth) : 0;
        }
    }
    template <class OnPiece> __device__ __forceinline__ void advance(OnPiece piece) {
#pragma unroll
        for (int load = 0; load < Runs::LOADS; load++) {
#pragma unroll
            for (int j = 0; j < Runs::LENGTH; j += PIECE_SIZE)
                piece(load, j, at[load] + j, remaining[load] > 0 && (PIECE_SIZE == Runs::LENGTH || j < count[load]));
            at[load] += step;
            remaining[load] -= Runs::DEPTH;
        }
    }
};
