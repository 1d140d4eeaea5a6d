// Matrix products of row-major matrices, either of which may be stored transposed, and batches of such products.
//
// ELEMENT, BIAS_ELEMENT, RESULT_ELEMENT: types of the matrices, of the bias and of the product. PIECE_A, PIECE_B: elements
// that are read at once: rows of the operand as it is stored are multiples of it. The tile: see tile.cuh.
#include "tile.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef BIAS_ELEMENT
#define BIAS_ELEMENT ELEMENT
#endif
#ifndef RESULT_ELEMENT
#define RESULT_ELEMENT ELEMENT
#endif
#ifndef TRANSPOSE_A
#define TRANSPOSE_A 0
#define TRANSPOSE_B 0
#endif
#ifndef PIECE_A
#define PIECE_A 4
#define PIECE_B 4
#endif

typedef ELEMENT T;
typedef RESULT_ELEMENT R;
typedef Wide<T> A;
typedef TileOf<T, TRANSPOSE_A, !TRANSPOSE_B> Tile;
typedef Choose<TRANSPOSE_A, AcrossDepth<T, Tile::Left, PIECE_A>, AlongDepth<T, Tile::Left, PIECE_A>>::type Left;
typedef Choose<!TRANSPOSE_B, AcrossDepth<T, Tile::Right, PIECE_B>, AlongDepth<T, Tile::Right, PIECE_B>>::type Right;

struct Sizes {
    int m, n, k;
    // Depth of a part when several blocks share a sum; at least k otherwise.
    int part;
    // Elements from one product's operand to the next's; 0 where one serves all.
    i64 batch_a, batch_b;
    int batch;
    int relu;
};

// What becomes of a sum. Without a bias the pointer is null.
__device__ __forceinline__ R finish(A sum, const BIAS_ELEMENT *bias, int column, int relu) {
    if (bias) sum += A(widen(bias[column]));
    // Written so that a NaN stays one.
    if (relu && sum < A(0)) sum = A(0);
    return narrow<R>(sum);
}

// The gradient by what relu was applied to: of a product, where relu's result is above zero.
__device__ __forceinline__ R masked(R value, R relu) { return widen(relu) > 0 ? value : narrow<R>(Wide<R>(0)); }

// Blocks: x over products and their tiles, columns fastest; y over parts of the depth. With several parts the sums go to
// `parts` [part][product][m][n], and `matmul_finish` adds them.
extern "C" __global__ void __launch_bounds__(Tile::THREADS, RESIDENT)
matmul(const T *__restrict__ a, const T *__restrict__ b, const BIAS_ELEMENT *__restrict__ bias, const R *__restrict__ mask, R *__restrict__ c, A *__restrict__ parts, const Sizes size) {
    __shared__ typename Tile::Shared shared;
    const int across = (size.n + TILE_N - 1) / TILE_N;
    const int down = (size.m + TILE_M - 1) / TILE_M;
    const int row = blockIdx.x / across % down * TILE_M, column = blockIdx.x % across * TILE_N;
    const i64 batch = blockIdx.x / across / down;
    const int begin = blockIdx.y * size.part, end = min(size.k, begin + size.part);
    Mover<Left, T, Tile::Element> left(Left(a + batch * size.batch_a, row, size.m, TRANSPOSE_A ? size.m : size.k, begin, end));
    Mover<Right, T, Tile::Element> right(Right(b + batch * size.batch_b, column, size.n, TRANSPOSE_B ? size.k : size.n, begin, end));
    Tile tile;
    accumulate(tile, left, right, (end - begin + Tile::DEPTH - 1) / Tile::DEPTH, shared);
    const i64 product = (i64)size.m * size.n;
    const bool vector = size.n % 4 == 0;
    R *const to = c + batch * product;
    A *const part = parts + ((i64)blockIdx.y * size.batch + batch) * product;
    tile.for_each_quad([&](int i, int j, const Quad<A> &values) {
        const i64 at = (i64)(row + i) * size.n + column + j;
        const int count = size.n - column - j;
        if (row + i >= size.m || count <= 0) return;
        if (gridDim.y > 1) return write_quad(part + at, values, count, vector);
        Quad<R> quad;
#pragma unroll
        for (int l = 0; l < 4; l++) quad.at[l] = finish(values.at[l], bias, min(column + j + l, size.n - 1), size.relu);
        if (mask) {
            const R *from = mask + batch * product + at;
#pragma unroll
            for (int l = 0; l < 4; l++) quad.at[l] = masked(quad.at[l], from[min(l, count - 1)]);
        }
        write_quad(to + at, quad, count, vector);
    });
}

// Adds the parts in their order.
extern "C" __global__ void matmul_finish(const A *__restrict__ parts, const BIAS_ELEMENT *__restrict__ bias, const R *__restrict__ mask, R *__restrict__ c, const i64 elements, const int n, const int count, const int relu) {
    for (i64 at = first_element(); at < elements; at += element_stride()) {
        A sum = A(0);
        for (int part = 0; part < count; part++) sum += parts[part * elements + at];
        R value = finish(sum, bias, (int)(at % n), relu);
        c[at] = mask ? masked(value, mask[at]) : value;
    }
}
