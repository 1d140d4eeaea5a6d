// Windows of images with few channels as the rows of a matrix, read where they lie: in shared memory as in memory, all values
// of a window's row are neighbours, so that the two neighbours in depth that a register of a tensor core holds are one read
// of four bytes. No matrix of windows is ever written.
#pragma once
#include "staging.cuh"
#include "tensor_product.cuh"

// The rows of an image under TileH × TileW windows of TapsH × TapsW pixels, for two tiles. A depth is a window's row and a
// place in it. Unit: neighbours in memory that are always inside or outside together, and whole in 16 bytes, from Lead before
// the first window on.
template <class T, int Channels, int TapsH, int TapsW, int StrideH, int StrideW, int TileH, int TileW, int Unit, int Lead> struct WindowRows {
    static constexpr int PIXELS = TileH * TileW, MATRICES = (PIXELS + 15) / 16;
    static constexpr int ROWS = (TileH - 1) * StrideH + TapsH, LINE = Lead + ((TileW - 1) * StrideW + TapsW) * Channels;
    static constexpr int PITCH = (LINE + 8) / 8 * 8, STEP = StrideW * Channels;
    static constexpr int WINDOW = TapsW * Channels;
    // A row takes whole steps of 16 depths, whose reads lie at distances that the compiler knows, where that makes few more
    // of them; else as few depths as are read at once.
    static constexpr int SHORT = STEP % 4 == 0 ? (WINDOW + 3) / 4 * 4 : (WINDOW + 1) / 2 * 2, LONG = (WINDOW + 15) / 16 * 16;
    static constexpr bool WHOLE = TapsH * LONG / 16 * 4 <= (TapsH * SHORT + 15) / 16 * 5;
    static constexpr int RUN = WHOLE ? LONG : SHORT, DEPTHS = TapsH * RUN, STEPS = (DEPTHS + 15) / 16;
    // Windows that begin at odd places are read from a second copy, one place to the left; half of all banks away, so that
    // neighbours do not meet there.
    static constexpr bool SHIFTED = STEP % 2 == 1;
    static constexpr int COPY = SHIFTED ? (ROWS * PITCH + 16 + 31) / 64 * 64 + 32 : ROWS * PITCH + 16;
    static constexpr int SIZE = COPY * (SHIFTED ? 3 : 2);

    // Where the rows of a tile are.
    static __device__ __forceinline__ int place(int stage) { return stage * (SHIFTED ? 2 : 1) * COPY; }

    // Where the window of a tile's pixel lies in its rows; pixels past the last stand on the first.
    static __device__ __forceinline__ int window(int pixel) {
        if (pixel >= PIXELS) pixel = 0;
        return Lead + pixel / TileW * StrideH * PITCH + pixel % TileW * STEP;
    }
    // Where to read a window.
    static __device__ __forceinline__ int begin(int window, int stage) { return SHIFTED && window % 2 == 1 ? COPY + window - 1 : place(stage) + window; }

    // Two neighbours in depth: their distance from the window's beginning and, in whole steps, `slot`, their place in the
    // step; and which of them are the window's. What is not is never multiplied: the filters' zeros would not hide an infinity.
    struct Pair {
        int offset;
        u32 keep;
    };
    static __device__ __forceinline__ Pair pair(int step, int slot) {
        const int depth = step * 16 + slot, row = WHOLE ? step / (RUN / 16) : depth / RUN, place = WHOLE ? step % (RUN / 16) * 16 + slot : depth % RUN;
        if (!WHOLE && DEPTHS % 16 != 0 && depth >= DEPTHS) return {0, 0u};
        return {row * PITCH + place - (WHOLE ? slot : 0), place + 1 < WINDOW ? ~0u : place < WINDOW ? 0xffffu : 0u};
    }
    static __device__ __forceinline__ int lane(int slot) { return WHOLE ? slot : 0; }
    // Whether all depths of a step are the window's.
    static __device__ __forceinline__ constexpr bool full(int step) {
        return WHOLE ? step % (RUN / 16) * 16 + 16 <= WINDOW : RUN == WINDOW && DEPTHS % 16 == 0;
    }

    // Starts the way of the rows from row `top` and column `left` of an image of `height` × `width` into shared memory, with
    // zeros for what is outside.
    template <int Threads> static __device__ __forceinline__ void bring_rows(T *rows, const T *image, int height, int width, int top, int left) {
        constexpr int UNITS = (LINE + Unit - 1) / Unit;
        const int first = left * Channels - Lead, line = width * Channels;
        for (int at = threadIdx.x; at < ROWS * UNITS; at += Threads) {
            const int y = top + at / UNITS, x = first + at % UNITS * Unit;
            const bool there = (u32)y < (u32)height && (u32)x < (u32)line;
            bring<Unit>(&rows[at / UNITS * PITCH + at % UNITS * Unit], there ? &image[(i64)y * line + x] : image, there);
        }
    }
    // Makes the second copy, when the rows have arrived.
    template <int Threads> static __device__ __forceinline__ void shift(T *room, int stage) {
        for (int at = threadIdx.x * 8; at < ROWS * PITCH; at += Threads * 8) {
            const uint4 here = *(const uint4 *)&room[place(stage) + at];
            const u32 next = *(const u32 *)&room[place(stage) + at + 8];
            const u32 shifted[4] = {__byte_perm(here.x, here.y, 0x5432), __byte_perm(here.y, here.z, 0x5432), __byte_perm(here.z, here.w, 0x5432), __byte_perm(here.w, next, 0x5432)};
            *(uint4 *)&room[COPY + at] = make_uint4(shifted[0], shifted[1], shifted[2], shifted[3]);
        }
    }
};
