// Windows of images with few channels as the rows of a matrix, read where they lie: in shared memory as in memory, all values
// of a window's row are neighbours, so that the two neighbours in depth that a register of a tensor core holds are one read
// of four bytes. No matrix of windows is ever written.
#pragma once
#include "staging.cuh"
#include "tensor_product.cuh"

// The rows of an image under TileH × TileW windows of TapsH × TapsW pixels. A depth is a window's row and a place in it; rows
// take an even number of depths.
template <class T, int Channels, int TapsH, int TapsW, int StrideH, int StrideW, int TileH, int TileW> struct WindowRows {
    static constexpr int PIXELS = TileH * TileW, MATRICES = (PIXELS + 15) / 16;
    static constexpr int ROWS = (TileH - 1) * StrideH + TapsH, LINE = ((TileW - 1) * StrideW + TapsW) * Channels;
    static constexpr int PITCH = (LINE + 8) / 8 * 8;
    // Windows that begin at odd places are read from a second copy, one place to the left; half of all banks away, so that
    // neighbours do not meet there.
    static constexpr bool SHIFTED = StrideW * Channels % 2 == 1;
    static constexpr int COPY = SHIFTED ? (ROWS * PITCH + 31) / 64 * 64 + 32 : ROWS * PITCH;
    static constexpr int SIZE = COPY * (SHIFTED ? 2 : 1);
    static constexpr int WINDOW = TapsW * Channels, RUN = (WINDOW + 1) / 2 * 2, DEPTHS = TapsH * RUN;
    // Neighbours that are always inside or outside together.
    static constexpr int UNIT = Channels % 8 == 0 ? 8 : Channels % 4 == 0 ? 4 : Channels % 2 == 0 ? 2 : 1;

    // Where the window of a tile's pixel begins; pixels past the last stand on the first.
    static __device__ __forceinline__ int begin(int pixel) {
        if (pixel >= PIXELS) pixel = 0;
        const int at = pixel / TileW * StrideH * PITCH + pixel % TileW * StrideW * Channels;
        return SHIFTED && at % 2 == 1 ? COPY + at - 1 : at;
    }

    // Two neighbours in depth: their distance from the window's beginning, and which of them are the window's. What is not
    // is never multiplied: the filters' zeros would not hide an infinity.
    struct Pair {
        int offset;
        u32 keep;
    };
    static __device__ __forceinline__ Pair pair(int depth) {
        const int row = depth / RUN, place = depth % RUN;
        if (DEPTHS % 16 != 0 && depth >= DEPTHS) return {0, 0u};
        return {row * PITCH + place, WINDOW % 2 == 1 && place == WINDOW - 1 ? 0xffffu : ~0u};
    }
    static __device__ __forceinline__ u32 read(const T *rows, int begin, Pair pair) {
        const u32 values = *(const u32 *)&rows[begin + pair.offset];
        return WINDOW % 2 == 1 || DEPTHS % 16 != 0 ? values & pair.keep : values;
    }

    // Brings the rows from row `top` and column `left` of an image of `height` × `width` into shared memory, zeros for what
    // is outside.
    template <int Threads> static __device__ __forceinline__ void bring(T *rows, const T *image, int height, int width, int top, int left) {
        typedef Piece<T, UNIT> Unit;
        constexpr int UNITS = LINE / UNIT;
        const int first = left * Channels, line = width * Channels;
        stage<Unit, ROWS * UNITS, Threads, UNIT == 8 ? 4 : 8>(
            [&](int at) {
                const int y = top + at / UNITS, x = first + at % UNITS * UNIT;
                return (u32)y < (u32)height && (u32)x < (u32)line ? *(const Unit *)&image[(i64)y * line + x] : Unit{};
            },
            [&](int at, const Unit &unit) {
                const int to = at / UNITS * PITCH + at % UNITS * UNIT;
                *(Unit *)&rows[to] = unit;
                if (SHIFTED && to > 0) rows[COPY + to - 1] = unit.at[0];
            });
    }
};
