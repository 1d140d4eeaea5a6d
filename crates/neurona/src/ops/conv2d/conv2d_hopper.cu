// Convolution forward and input gradient on Hopper's tensor cores, f16 and bf16, NHWC, groups = 1: a matrix product whose rows are
// output pixels, whose columns are output channels, and whose sum runs over filter taps and input channels. The copy engine gathers the
// pixels that a tap sees, with padding and strides, straight into shared memory.
//
// Limits: input and output channels multiples of 8 (rows of 16 bytes); fewer than 2^30 pixels; strides at most 8; every map's corners
// within [-128, 127]; (taps - 1) dilation below 256. Any filter size, padding, dilation.
//
// The filters are packed first (conv2d_hopper_pack.cu), into the workspace: 2 out in taps bytes, 256-aligned.
// conv2d_hopper: grid min(tiles, multiprocessors BLOCKS_PER_SM), where tiles = last part's tiles_end tiles_n; block THREADS; dynamic
//   shared memory as hopper.cuh says. A_CHUNK = B_CHUNK: 16 for up to 16 input channels, 32 where that wastes fewer zeros, else 64.
//   in0 .. in3    im2col map of the input for every part, repeated where there are fewer: sizes {channels, w, h, n}, dense strides; lower corner
//                 {low_w, low_h}; upper corner {low_w + (width - 1) step_w + 1 - w, the same of h}; A_CHUNK channels per pixel, TILE_M
//                 pixels per column; element strides {1, step_w, step_h, 1}; no interleave; swizzle 2 A_CHUNK bytes; zeros outside
//   filters       tiled map of the packed filters: sizes {channels, taps, columns}; box {A_CHUNK, 1, TILE_N}; the same swizzle
//   out0 .. out3  im2col map of the output for every part: corners as above from out_*, width, height and out_step_*; OUT_CHUNK channels per
//                 pixel, 64 pixels per column; element strides {1, out_step_w, out_step_h, 1}; swizzle 2 OUT_CHUNK bytes
//   scale, bias   [columns] or null: output = relu(sum scale + bias)
// More than four parts (stride above 2) take several launches.
#include "hopper.cuh"
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Part of a convolution whose output pixels form a grid of rows x columns per image, and whose taps lie at even distances. Forward and
// the input gradient of stride 1 are one part; the input gradient of stride s falls into s^2 parts, one for each remainder of the
// pixel's position, which see disjoint taps: nothing is multiplied by the zeros that a dilated gradient would hold.
struct Part {
    int tiles_end;                 // tiles of TILE_M pixels in this part and those before it
    int height, width;             // output pixels of this part per image
    int low_h, low_w;              // where in the input the first pixel's first tap lies
    int step_h, step_w;            // from one pixel to the next, in the input
    int out_h, out_w;              // the first pixel's place in the output
    int out_step_h, out_step_w;    // from one pixel to the next, in the output
    int taps_h, taps_w;            // taps that these pixels see; 0 where none does
    int offset_h, offset_w;        // from one tap to the next, in the input
    int filter, filter_h, filter_w; // which filter tap is the first, and the next ones' distance from it
};
struct Plan {
    int parts, tiles_n;
    int channels, columns;         // input channels (summed), output channels
    int relu;
    Part part[4];
};

__device__ __forceinline__ const TensorMap *choose(int i, const TensorMap *a, const TensorMap *b, const TensorMap *c, const TensorMap *d) {
    return i == 0 ? a : i == 1 ? b : i == 2 ? c : d;
}

// Which tile, of which part.
struct Tile {
    int part, pixel, column;
    __device__ __forceinline__ Tile(const Plan &plan, int tile) {
        column = tile % plan.tiles_n * TILE_N;
        int row = tile / plan.tiles_n, start = 0;
        for (part = 0; row >= plan.part[part].tiles_end; ++part) start = plan.part[part].tiles_end;
        pixel = (row - start) * TILE_M;
    }
};

HOPPER_KERNEL conv2d_hopper(
    const __grid_constant__ TensorMap in0, const __grid_constant__ TensorMap in1, const __grid_constant__ TensorMap in2,
    const __grid_constant__ TensorMap in3, const __grid_constant__ TensorMap filters, const __grid_constant__ TensorMap out0,
    const __grid_constant__ TensorMap out1, const __grid_constant__ TensorMap out2, const __grid_constant__ TensorMap out3,
    const SCALE_ELEMENT *scale, const BIAS_ELEMENT *bias, const __grid_constant__ Plan plan) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Room room(shared);
    room.prepare();
    int tiles = plan.part[plan.parts - 1].tiles_end * plan.tiles_n;
    // A stage holds this many taps or blocks of channels.
    constexpr int PER_STAGE = DEPTH / A_CHUNK;
    int blocks = (plan.channels + A_CHUNK - 1) / A_CHUNK;
    Walk walk;

    if (threadIdx.x >= SUM_THREADS) {
        if (threadIdx.x == SUM_THREADS) {
            for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
                Tile tile(plan, index);
                const Part &part = plan.part[tile.part];
                const TensorMap *in = choose(tile.part, &in0, &in1, &in2, &in3);
                int pixel = tile.pixel;
                int w = part.low_w + pixel % part.width * part.step_w;
                pixel /= part.width;
                int h = part.low_h + pixel % part.height * part.step_h;
                int n = pixel / part.height;
                int pieces = part.taps_h * part.taps_w * blocks;
                int tap_h = 0, tap_w = 0, channel = 0;
                int piece = 0;
                do {
                    u32 to = stage_for_copies(room, walk), full = room.full + 8 * walk.stage;
#pragma unroll
                    for (int i = 0; i < PER_STAGE; ++i) {
                        // Past the last piece, or where no tap sees the pixels, the channel is out of range, and zeros arrive.
                        int c = piece + i < pieces ? channel : plan.channels;
                        copy_pixels(to + i * TILE_M * A_CHUNK * 2, in, full, c, w, h, n, tap_w * part.offset_w, tap_h * part.offset_h);
                        int tap = part.filter + tap_h * part.filter_h + tap_w * part.filter_w;
                        copy_3d(to + A_BYTES + i * TILE_N * A_CHUNK * 2, &filters, full, c, tap, tile.column);
                        if ((channel += A_CHUNK) >= plan.channels) {
                            channel = 0;
                            if (++tap_w == part.taps_w) { tap_w = 0; ++tap_h; }
                        }
                    }
                    walk.next();
                } while ((piece += PER_STAGE) < pieces);
            }
        }
    } else {
        int group = threadIdx.x / 128;
        u32 piece = 0;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            Tile tile(plan, index);
            const Part &part = plan.part[tile.part];
            const TensorMap *out = choose(tile.part, &out0, &out1, &out2, &out3);
            Sums sums;
            multiply(sums, room, walk, max(1, (part.taps_h * part.taps_w * blocks + PER_STAGE - 1) / PER_STAGE), group);
            int column = tile.column + group / GROUPS_M * GROUP_COLUMNS, first = tile.pixel + group % GROUPS_M * GROUP_ROWS;
            finish(sums, room, group, piece, column, Finish{scale, bias, plan.columns, plan.relu}, [&](u32 from, int row, int chunk) {
                if (threadIdx.x % 128) return;
                int pixel = first + row;
                int w = part.out_w + pixel % part.width * part.out_step_w;
                pixel /= part.width;
                int h = part.out_h + pixel % part.height * part.out_step_h;
                store_pixels(out, from, column + chunk, w, h, pixel / part.height);
                store_commit();
            });
        }
        if ((threadIdx.x & 127) == 0) store_wait<0>();
    }
}
#endif
