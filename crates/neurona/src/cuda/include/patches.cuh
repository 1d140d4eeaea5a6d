// Small pieces of images [n, h, w, c] that a thread has as a whole: windows of pooling that do not overlap, without padding,
// and tiles of one stride. A window lies in the upper left corner of its tile; tiles at the edge may have none.
#pragma once
#include "batch_norm.cuh"
#include "windows.cuh"

__device__ __forceinline__ double greater(double a, double b) { return b > a || b != b ? b : a; }

// ROWS by COLUMNS cells of V channels, from a corner that is inside the images. Cells beyond the edge are taken from the
// nearest inside: that one comes earlier, so it stays the first of the greatest. All are read before the first is used,
// because memory answers late; of so many that registers would not hold them each is read when it is looked at.
template <int ROWS, int COLUMNS> struct Patch {
    static constexpr int SIZE = ROWS * COLUMNS;
    static constexpr bool HELD = SIZE <= 16;
    // Patches that are read ahead: as many as make four loads of 16 bytes.
    static constexpr int AHEAD = SIZE * V * sizeof(T) > 32 ? 1 : SIZE * V * sizeof(T) > 16 ? 2 : 4;

    const T *corner;
    int down, across;
    i64 row;
    int c;
    Group<T> held[HELD ? SIZE : 1];

    __device__ __forceinline__ Group<T> load(int i) const {
        int y = i / COLUMNS, x = i % COLUMNS;
        return load_group(corner + (y < down ? y : down - 1) * row + (i64)((x < across ? x : across - 1) * c));
    }
    __device__ __forceinline__ Group<T> cell(int i) const { return HELD ? held[i] : load(i); }
    __device__ __forceinline__ bool inside(int i) const { return i / COLUMNS < down && i % COLUMNS < across; }
};
typedef Patch<WINDOW_HEIGHT, WINDOW_WIDTH> Window;
typedef Patch<STRIDE_DOWN, STRIDE_ACROSS> Tile;

// The patch one stride or more from its neighbours at this place among them.
template <class Patch> __device__ __forceinline__ Patch patch_at(const T *x, const Pixel &at, const Images &g, i64 column) {
    Patch found;
    int corner_y = at.y * STRIDE_DOWN, corner_x = at.x * STRIDE_ACROSS;
    found.corner = x + offset(at.image, corner_y, corner_x, 0, g.h, g.w, g.c) + column;
    found.down = g.h - corner_y, found.across = g.w - corner_x;
    found.row = (i64)g.w * g.c, found.c = g.c;
    if constexpr (Patch::HELD) {
#pragma unroll
        for (int i = 0; i < Patch::SIZE; i++) found.held[i] = found.load(i);
    }
    return found;
}
