// Convolution forward and input gradient of stride 1 with few channels on Hopper's tensor cores, f16 and bf16, NHWC, groups = 1.
//
// Bringing the pixels of every tap one by one moves the input through the L2 cache as often as the filter has taps, which is the limit
// when there are few output channels to use them. Here the output pixels are counted through the padded image: rows of width + padding
// (a row's right padding is the next one's left padding), so that a tile of consecutive pixels sees, for all taps, one run of
// consecutive padded pixels. This slab comes once; a tap is a row of it to start from. All filters stay in shared memory. The few
// pixels that are no outputs are computed and not stored.
//
// Every group of warps has tiles of its own, and the groups take turns: one multiplies while the others round and store.
//
// Limits: those of conv2d_hopper.cu; stride 1; padding at most (taps - 1) dilation on each axis; filters and slabs must fit shared memory.
// The input gradient of stride 1 is a forward pass over the gradient with padding (taps - 1) dilation - padding, with transposed filters
// (conv2d_hopper_pack.cu) from the last tap back: filter = taps - 1, filter_h = - filter width, filter_w = -1.
//
// Grid: min(multiprocessors BLOCKS_PER_SM / tiles_n, tiles / GROUPS) tiles_n; block THREADS; GROUPS_N = 1; dynamic shared memory filter_bytes +
//   GROUPS (STAGES (slab_bytes + 16) + OUT_BUFFERS 128 OUT_CHUNK + 8) + 8 + 8 TILE_M.
//   input    im2col map: sizes {channels, w, h, n}; lower corner {low_w, low_h}; upper corner {0, 0}; A_CHUNK channels per pixel, a slab's
//            pixels per column: GROUP_ROWS + (taps_h - 1) shift_h + (taps_w - 1) shift_w, rounded up to 512 / A_CHUNK; element strides 1;
//            swizzle 2 A_CHUNK bytes; at most 1024 pixels
//   filters  tiled map of the packed filters: sizes {channels, taps, columns}; box {A_CHUNK, 1, TILE_N}
//   out      NHWC
#ifndef TILE_M
#define TILE_M 256
#define TILE_N 64
#define STAGES 2
#define OUT_BUFFERS 2
#define BLOCKS_PER_SM 1
#endif
#include "hopper.cuh"
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct SlabPlan {
    int images;
    int height, width;              // padded pixels: of the input plus the padding once
    int out_height, out_width;      // pixels of the output
    int low_h, low_w;               // minus the padding
    int taps_h, taps_w;
    int shift_h, shift_w;           // slab rows from one tap to the next: the dilation, times width if down
    int filter, filter_h, filter_w; // which filter tap is the first, and the next ones' distance from it
    int blocks;                     // blocks of A_CHUNK input channels
    int columns;                    // output channels
    int tiles, tiles_n;             // tiles of GROUP_ROWS pixels, of TILE_N output channels
    u32 filter_bytes, slab_bytes;   // taps blocks TILE_N 2 A_CHUNK; pixels of a slab times 2 A_CHUNK, a multiple of 1024
    int relu;
};

HOPPER_KERNEL conv2d_hopper_slab(const __grid_constant__ TensorMap input, const __grid_constant__ TensorMap filters,
                                 ELEMENT *out, const SCALE_ELEMENT *scale,
                                 const BIAS_ELEMENT *bias, const __grid_constant__ SlabPlan plan) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Room room(shared, plan.filter_bytes + GROUPS * STAGES * plan.slab_bytes);
    u32 full = room.full, empty = full + 8 * GROUPS * STAGES, loaded = empty + 8 * GROUPS * STAGES, turns = loaded + 8;
    // Where the rows of a tile go; two for every group, since a thread may be a tile ahead of another.
    u32 *places = (u32 *)(shared + (turns + 8 * GROUPS - room.stages));
    if (threadIdx.x == 0) {
        for (int i = 0; i < GROUPS * STAGES; ++i) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4);
        }
        barrier_init(loaded, 1);
        for (int i = 0; i < GROUPS; ++i) barrier_init(turns + 8 * i, 1);
        barrier_init_fence();
    }
    __syncthreads();
    constexpr u32 FILTER = TILE_N * A_CHUNK * 2;
    int column = blockIdx.x % plan.tiles_n * TILE_N, first = blockIdx.x / plan.tiles_n * GROUPS, stride = gridDim.x / plan.tiles_n * GROUPS;
    Walk walk;

    if (threadIdx.x >= SUM_THREADS) {
        if (threadIdx.x == SUM_THREADS) {
            barrier_expect(loaded, plan.filter_bytes);
            u32 to = room.stages;
            for (int h = 0; h < plan.taps_h; ++h)
                for (int w = 0; w < plan.taps_w; ++w)
                    for (int block = 0; block < plan.blocks; ++block, to += FILTER)
                        copy_3d(to, &filters, loaded, block * A_CHUNK, plan.filter + h * plan.filter_h + w * plan.filter_w, column);
            // A group's whole tile before the next group's: it multiplies while the others wait for their turn, and must not wait for them.
            for (int start = first; start < plan.tiles; start += stride) {
                Walk before = walk;
                for (int group = 0; group < GROUPS && start + group < plan.tiles; ++group) {
                    int pixel = (start + group) * GROUP_ROWS, line = pixel / plan.width, n = line / plan.height;
                    int w = plan.low_w + pixel - line * plan.width, h = plan.low_h + line - n * plan.height;
                    walk = before;
                    for (int block = 0; block < plan.blocks; ++block) {
                        u32 at = group * STAGES + walk.stage;
                        barrier_wait(empty + 8 * at, walk.turn ^ 1);
                        barrier_expect(full + 8 * at, plan.slab_bytes);
                        copy_pixels(to + at * plan.slab_bytes, &input, full + 8 * at, block * A_CHUNK, w, h, n, 0, 0);
                        walk.next();
                    }
                }
            }
        }
    } else {
        int group = threadIdx.x / 128;
        constexpr u32 NOWHERE = ~0u;
        u32 piece = 0, odd = 0, parity = group ? 0 : 1;
        u32 slabs = room.stages + plan.filter_bytes + group * STAGES * plan.slab_bytes;
        full += 8 * group * STAGES;
        empty += 8 * group * STAGES;
        barrier_wait(loaded, 0);
        for (int tile = first + group; tile < plan.tiles; tile += stride) {
            Sums sums;
            barrier_wait(turns + 8 * group, parity);
            parity ^= 1;
            u32 previous = 0;
            for (int block = 0; block < plan.blocks; ++block) {
                barrier_wait(full + 8 * walk.stage, walk.turn);
                wgmma_begin();
                u64 rows = describe<0, A_CHUNK>(slabs + walk.stage * plan.slab_bytes);
                u64 filter = describe<0, A_CHUNK>(room.stages + block * FILTER);
                for (int h = 0; h < plan.taps_h; ++h)
                    for (int w = 0; w < plan.taps_w; ++w) {
                        u64 a = moved(rows, (h * plan.shift_h + w * plan.shift_w) * (A_CHUNK * 2 >> 4));
#pragma unroll
                        for (int k = 0; k < A_CHUNK; k += 16)
#pragma unroll
                            for (int i = 0; i < ROW_BLOCKS; ++i)
                                wgmma<0, 0>(sums[i], moved(a, (k * 2 + i * 64 * A_CHUNK * 2) >> 4), moved(filter, k * 2 >> 4), block | h | w | k, (ELEMENT *)0);
                        filter = moved(filter, plan.blocks * (FILTER >> 4));
                    }
                wgmma_commit();
                // With a single slab the next block can only come after this one is read.
                bool alone = STAGES == 1 && block + 1 < plan.blocks;
                if (alone) {
                    wgmma_wait<0>();
                    if ((threadIdx.x & 31) == 0) barrier_arrive(empty + 8 * walk.stage);
                } else if (STAGES > 1 && block) {
                    wgmma_wait<1>();
                    if ((threadIdx.x & 31) == 0) barrier_arrive(empty + 8 * previous);
                }
                previous = walk.stage;
                walk.next();
            }
            if (threadIdx.x % 128 == 0) barrier_arrive(turns + 8 * ((group + 1) % GROUPS));
            wgmma_wait<0>();
            if ((threadIdx.x & 31) == 0) barrier_arrive(empty + 8 * previous);
            settle(sums);
            // Pixels between those of the output have no place, and the copy engine's stores know no gaps: threads store.
            u32 *place = places + (group * 2 + (odd ^= 1)) * GROUP_ROWS, thread = threadIdx.x % 128;
#pragma unroll
            for (int row = 0; row < GROUP_ROWS; row += 128) {
                int pixel = tile * GROUP_ROWS + row + thread, line = pixel / plan.width, n = line / plan.height;
                int q = pixel - line * plan.width, p = line - n * plan.height;
                bool inside = n < plan.images && p < plan.out_height && q < plan.out_width;
                if (row + thread < GROUP_ROWS) place[row + thread] = inside ? (n * plan.out_height + p) * plan.out_width + q : NOWHERE;
            }
            finish(sums, room, group, piece, column, Finish{scale, bias, plan.columns, plan.relu}, [&](u32 from, int row, int chunk) {
                constexpr u32 ACROSS = OUT_CHUNK / 8;
                const unsigned char *buffer = shared + (from - room.stages);
#pragma unroll
                for (u32 i = thread; i < 64 * ACROSS; i += 128) {
                    u32 pixel = place[row + i / ACROSS];
                    int at = column + chunk + i % ACROSS * 8;
                    if (pixel != NOWHERE && at < plan.columns)
                        *(uint4 *)(out + (i64)pixel * plan.columns + at) = *(const uint4 *)(buffer + swizzled(i * 16));
                }
            });
        }
    }
}
#endif
