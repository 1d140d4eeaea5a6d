// The instructions of tensor cores since Ampere, and of copies that pass registers by.
#pragma once
#include "prelude.cuh"

// sums[16, 8] += left[16, 16] · right[16, 8], of a whole warp. Lane l holds of `left` rows l / 4 and l / 4 + 8, columns
// 2 (l % 4), the next, and both again 8 further; of `right` column l / 4, the same depths; of `sums` rows l / 4 and
// l / 4 + 8, columns 2 (l % 4) and the next.
__device__ __forceinline__ void multiply(float (&sums)[4], const u32 (&left)[4], const u32 (&right)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

// Four 8 × 8 matrices of 16-bit values from shared memory, spread over the warp as `multiply` wants them; lane 8 m + r
// gives the address of row r of matrix m. Transposed: of their columns.
__device__ __forceinline__ void load_matrices(u32 (&parts)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(u32 (&parts)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}

// 16 bytes from memory to shared memory in the background; zeros where there is nothing to copy.
__device__ __forceinline__ void copy_16(void *to, const void *from, bool something) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(something ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last PENDING groups of copies have arrived.
template <int PENDING> __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
