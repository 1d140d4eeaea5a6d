// What only Hopper (sm_90a) has: barriers that count bytes, the tensor copy engine, and products of a group of four warps.
// Shared memory is named by its 32-bit addresses.
#pragma once
#include "prelude.cuh"

// What the copy engine is told of a tensor in memory: the host encodes it (CUtensorMap).
struct __align__(64) TensorMap {
    unsigned char opaque[128];
};

__device__ __forceinline__ u32 address_of(const void *shared) { return (u32)__cvta_generic_to_shared(shared); }

__device__ __forceinline__ void barrier_begin(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// The copy engine must see barriers as they were begun.
__device__ __forceinline__ void barriers_begun() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and makes the barrier wait for so many bytes too.
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of the barrier's turn of this parity. A copy that never comes ends the kernel after some seconds: a
// measurement must not hang the machine it runs on.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    const i64 start = clock64();
    for (u32 done = 0; !done;) {
        asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
        if (!done && clock64() - start > 4000000000ll) __trap();
    }
}

// A box of a matrix whose corner is at (x, y), x along its rows; zeros where it reaches past the matrix.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap *map, u32 barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y) : "memory");
}
// What one place of a filter (right, down) sees at a run of output pixels, the first one's window starting at (x, y) of
// image n; channels from c on. This is the gathered matrix, made by the copy engine.
__device__ __forceinline__ void copy_pixels(u32 to, const TensorMap *map, u32 barrier, int c, int x, int y, int n, int right, int down) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(x), "r"(y), "r"(n), "h"((unsigned short)right), "h"((unsigned short)down) : "memory");
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products and waits until it is done.
__device__ __forceinline__ void products_finish() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Keeps the compiler from using a sum before the wait: the products write it behind the compiler's back.
__device__ __forceinline__ void settle(float &sum) { asm volatile("" : "+f"(sum)::"memory"); }

// sums[64, N] = (keep ? sums : 0) + left[64, 16] · right[16, N], straight from shared memory. Of `left` the depth lies
// innermost, of `right` the columns (the last 1 says so). Thread t of the group holds rows 16 (t / 32) + t % 32 / 4
// (elements 4 j, 4 j + 1) and eight below (4 j + 2, 4 j + 3) of columns 8 j + 2 (t % 4) and the next.
#define EIGHT(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
__device__ __forceinline__ void multiply_group(float (&d)[32], u64 left, u64 right, int keep) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, keep, 1, 1, 0, 1;\n}"
                 : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24) : "l"(left), "l"(right), "r"(keep));
}
__device__ __forceinline__ void multiply_group(float (&d)[64], u64 left, u64 right, int keep) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, keep, 1, 1, 0, 1;\n}"
                 : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32), EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56)
                 : "l"(left), "l"(right), "r"(keep));
}
#undef EIGHT
