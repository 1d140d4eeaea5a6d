// What only Hopper (sm_90a) has: barriers in shared memory that count bytes, the tensor copy engine, and matrix products issued by
// a group of four warps. Shared addresses are the 32-bit ones of the shared window.
#pragma once
#include "prelude.cuh"

// CUtensorMap: the host encodes it, the copy engine reads it out of the parameters.
struct __align__(64) TensorMap { unsigned char opaque[128]; };

__device__ __forceinline__ u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// ---- barriers ----
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ bool barrier_try(u32 barrier, u32 parity) {
    u32 done;
    asm volatile("{\n.reg .pred done;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done;
}
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
#ifdef SPIN_LIMIT // turns a deadlock into an error while a kernel is being developed
    for (int i = 0; !barrier_try(barrier, parity); ++i) if (i > SPIN_LIMIT) __trap();
#else
    while (!barrier_try(barrier, parity)) {}
#endif
}
// A barrier among `threads` threads of the block; 0 is __syncthreads's own.
__device__ __forceinline__ void named_barrier(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// ---- copy engine ----
__device__ __forceinline__ void prefetch_map(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void copy_2d(u32 to, const TensorMap *map, u32 barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void copy_3d(u32 to, const TensorMap *map, u32 barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z) : "memory");
}
// A column of pixels from pixel (w, h, n) on, each moved by the offsets of a filter tap; what lies in the padding reads as zero.
__device__ __forceinline__ void copy_pixels(u32 to, const TensorMap *map, u32 barrier, int c, int w, int h, int n,
                                            unsigned short offset_w, unsigned short offset_h) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                 ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(offset_w), "h"(offset_h) : "memory");
}
__device__ __forceinline__ void store_2d(const TensorMap *map, u32 from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store_pixels(const TensorMap *map, u32 from, int c, int w, int h, int n) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 ::"l"(map), "r"(from), "r"(c), "r"(w), "r"(h), "r"(n) : "memory");
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but the last PENDING stores have read their shared memory.
template <int PENDING> __device__ __forceinline__ void store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
// Makes ordinary writes to shared memory visible to the copy engine; every writing thread calls it before the barrier.
__device__ __forceinline__ void copy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- fragments ----
// Four 8x8 matrices of 16-bit values: lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices(u32 to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ u32 pack_pair(float low, float high, f16 *) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ __forceinline__ u32 pack_pair(float low, float high, bf16 *) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// ---- matrix products ----
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// Keeps the compiler from moving uses of an accumulator above the wait: the products write it behind the compiler's back.
__device__ __forceinline__ void wgmma_settle(float &accumulator) { asm volatile("" : "+f"(accumulator)::"memory"); }

// wgmma<ROWS_A, ROWS_B>(d, a, b, keep): d[64, N] = (keep ? d : 0) + a[64, 16] b[16, N]. ROWS = 1 says that the rows (columns of b)
// lie next to each other in shared memory, 0 that the 16 summed values do. Thread t of the group holds rows 16 (t / 32) + t % 32 / 4
// (elements 4 j, 4 j + 1) and eight below (4 j + 2, 4 j + 3) of columns 8 j + 2 (t % 4) and the next.
// The names of a product's accumulators in its text, and the accumulators themselves.
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_64 NAMES_32 ", " "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_96 NAMES_64 ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_128 NAMES_96 ", " "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_160 NAMES_128 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_192 NAMES_160 ", " "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_224 NAMES_192 ", " "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_256 NAMES_224 ", " "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SIXTEEN(d, i) \
    "+f"(d[i + 0]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), \
    "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define SUMS_32(d) SIXTEEN(d, 0)
#define SUMS_64(d) SUMS_32(d), SIXTEEN(d, 16)
#define SUMS_96(d) SUMS_64(d), SIXTEEN(d, 32)
#define SUMS_128(d) SUMS_96(d), SIXTEEN(d, 48)
#define SUMS_160(d) SUMS_128(d), SIXTEEN(d, 64)
#define SUMS_192(d) SUMS_160(d), SIXTEEN(d, 80)
#define SUMS_224(d) SUMS_192(d), SIXTEEN(d, 96)
#define SUMS_256(d) SUMS_224(d), SIXTEEN(d, 112)
#define WGMMA_OF(N, TYPE, A, B, KEEP, TRANSPOSE_A, TRANSPOSE_B)                                                                     \
    template <int ROWS_A, int ROWS_B> __device__ __forceinline__ void wgmma(float (&d)[N / 2], u64 a, u64 b, int keep, TYPE *) {     \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" NAMES_##N "}, " A ", " B              \
                     ", keep, 1, 1, " TRANSPOSE_A ", " TRANSPOSE_B ";\n}"                                                        \
                     : SUMS_##N(d) : "l"(a), "l"(b), "r"(keep), "n"(ROWS_A), "n"(ROWS_B));                                        \
    }
#define WGMMA(N, ...) WGMMA_OF(N, f16, __VA_ARGS__) WGMMA_OF(N, bf16, __VA_ARGS__)
WGMMA(32, "%16", "%17", "%18", "%19", "%20")
WGMMA(64, "%32", "%33", "%34", "%35", "%36")
WGMMA(96, "%48", "%49", "%50", "%51", "%52")
WGMMA(128, "%64", "%65", "%66", "%67", "%68")
WGMMA(160, "%80", "%81", "%82", "%83", "%84")
WGMMA(192, "%96", "%97", "%98", "%99", "%100")
WGMMA(224, "%112", "%113", "%114", "%115", "%116")
WGMMA(256, "%128", "%129", "%130", "%131", "%132")
