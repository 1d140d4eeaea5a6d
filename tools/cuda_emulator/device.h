// Stands in front of every kernel source: the part of CUDA C++ that NVRTC has built in, for a C++ compiler on the CPU.
// No standard header is included: a kernel may use only what NVRTC gives it.
#pragma once
#include "interface.h"

#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __NVCC__ 1

typedef __SIZE_TYPE__ size_t;

namespace emulator {
inline Position position = {{0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}};
inline const Runtime *runtime = nullptr;
alignas(page_size) inline unsigned char dynamic_shared[dynamic_shared_room];

// Keeps the compiler from fusing the operation that made x into a later one, or an earlier one into it.
template <class T> __forceinline__ T rounded(T x) {
#if defined(__x86_64__)
    asm("" : "+x"(x));
#else
    asm("" : "+w"(x));
#endif
    return x;
}
template <class To, class From> __forceinline__ To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace emulator

#include "device_types.h"
#include "device_math.h"
#include "device_warp.h"
#include "device_checks.h"
#include "device_kernels.h"
