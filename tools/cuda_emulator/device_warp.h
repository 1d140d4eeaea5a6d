// Barriers, operations of a warp, atomics and fences. Threads of a block take turns and change only where they wait, so a
// plain read and write is atomic.
#pragma once

inline void __syncthreads() { emulator::runtime->wait_at_barrier(0, 0, 0); }
inline int __syncthreads_count(int predicate) { return emulator::runtime->wait_at_barrier(0, 0, predicate); }
inline int __syncthreads_or(int predicate) { return emulator::runtime->wait_at_barrier(0, 0, predicate) != 0; }
inline int __syncthreads_and(int predicate) { return emulator::runtime->wait_at_barrier(0, 0, !predicate) == 0; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

namespace emulator {
template <class Payload, class Body> inline void for_lanes(void *const *payloads, unsigned mask, Body body) {
    for (unsigned lane = 0; lane < 32; ++lane)
        if ((mask >> lane & 1) && payloads[lane]) body(lane, *(Payload *)payloads[lane]);
}
inline void combine_nothing(void *const *, unsigned) {}

struct Exchange {
    unsigned long long value;
    unsigned source;
    unsigned long long result;
};
inline void combine_exchange(void *const *payloads, unsigned mask) {
    for_lanes<Exchange>(payloads, mask, [&](unsigned, Exchange &mine) {
        // What a lane outside the mask holds is undefined: all ones reads as not-a-number.
        bool known = (mask >> mine.source & 1) && payloads[mine.source];
        mine.result = known ? ((Exchange *)payloads[mine.source])->value : ~0ull;
    });
}
template <class T> inline T exchange(unsigned mask, T x, unsigned source, const char *name) {
    Exchange mine = {0, source, 0};
    __builtin_memcpy(&mine.value, &x, sizeof x);
    runtime->warp_operation(mask, &mine, combine_exchange, name);
    __builtin_memcpy(&x, &mine.result, sizeof x);
    return x;
}

struct Vote {
    unsigned long long value;
    unsigned result;
};
inline void combine_ballot(void *const *payloads, unsigned mask) {
    unsigned result = 0;
    for_lanes<Vote>(payloads, mask, [&](unsigned lane, Vote &mine) { result |= (unsigned)(mine.value != 0) << lane; });
    for_lanes<Vote>(payloads, mask, [&](unsigned, Vote &mine) { mine.result = result; });
}
inline void combine_match(void *const *payloads, unsigned mask) {
    for_lanes<Vote>(payloads, mask, [&](unsigned, Vote &mine) {
        mine.result = 0;
        for_lanes<Vote>(payloads, mask, [&](unsigned lane, Vote &other) {
            mine.result |= (unsigned)(other.value == mine.value) << lane;
        });
    });
}
inline unsigned vote(unsigned mask, unsigned long long value, Combine combine, const char *name) {
    Vote mine = {value, 0};
    runtime->warp_operation(mask, &mine, combine, name);
    return mine.result;
}

template <class T, class Operator> struct Reduction {
    T value;
    static void combine(void *const *payloads, unsigned mask) {
        bool first = true;
        T total{};
        for_lanes<Reduction>(payloads, mask, [&](unsigned, Reduction &mine) {
            total = first ? mine.value : Operator::of(total, mine.value);
            first = false;
        });
        for_lanes<Reduction>(payloads, mask, [&](unsigned, Reduction &mine) { mine.value = total; });
    }
};
}  // namespace emulator

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    int nothing = 0;
    emulator::runtime->warp_operation(mask, &nothing, emulator::combine_nothing, "__syncwarp");
}
inline unsigned __activemask() { return emulator::runtime->live_lanes(); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return emulator::vote(mask, predicate != 0, emulator::combine_ballot, "__ballot_sync");
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

#define EMULATOR_WARP_TYPE(T)                                                                                         \
    inline T __shfl_sync(unsigned mask, T x, int source, int width = 32) {                                            \
        unsigned lane = emulator::runtime->lane(), first = lane & ~(unsigned)(width - 1);                             \
        return emulator::exchange(mask, x, first | ((unsigned)source & (unsigned)(width - 1)), "__shfl_sync");        \
    }                                                                                                                 \
    inline T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32) {                                     \
        unsigned lane = emulator::runtime->lane(), first = lane & ~(unsigned)(width - 1);                             \
        return emulator::exchange(mask, x, lane - first >= delta ? lane - delta : lane, "__shfl_up_sync");            \
    }                                                                                                                 \
    inline T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32) {                                   \
        unsigned lane = emulator::runtime->lane(), within = lane & (unsigned)(width - 1);                             \
        return emulator::exchange(mask, x, within + delta < (unsigned)width ? lane + delta : lane, "__shfl_down_sync"); \
    }                                                                                                                 \
    inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32) {                                          \
        unsigned lane = emulator::runtime->lane(), last = lane | (unsigned)(width - 1);                               \
        unsigned source = lane ^ (unsigned)bits;                                                                      \
        return emulator::exchange(mask, x, source <= last ? source : lane, "__shfl_xor_sync");                        \
    }                                                                                                                 \
    inline unsigned __match_any_sync(unsigned mask, T x) {                                                            \
        unsigned long long value = 0;                                                                                 \
        __builtin_memcpy(&value, &x, sizeof x);                                                                       \
        return emulator::vote(mask, value, emulator::combine_match, "__match_any_sync");                              \
    }                                                                                                                 \
    inline T __ldg(const T *from) { return *from; }
EMULATOR_WARP_TYPE(int)
EMULATOR_WARP_TYPE(unsigned)
EMULATOR_WARP_TYPE(long)
EMULATOR_WARP_TYPE(unsigned long)
EMULATOR_WARP_TYPE(long long)
EMULATOR_WARP_TYPE(unsigned long long)
EMULATOR_WARP_TYPE(float)
EMULATOR_WARP_TYPE(double)
#undef EMULATOR_WARP_TYPE

#define EMULATOR_CACHE_HINTS(T)                                        \
    inline T __ldcg(const T *from) { return *from; }                   \
    inline T __ldca(const T *from) { return *from; }                   \
    inline T __ldcs(const T *from) { return *from; }                   \
    inline T __ldcv(const T *from) { return *from; }                   \
    inline T __ldlu(const T *from) { return *from; }                   \
    inline void __stcg(T *to, T x) { *to = x; }                        \
    inline void __stcs(T *to, T x) { *to = x; }                        \
    inline void __stwb(T *to, T x) { *to = x; }                        \
    inline void __stwt(T *to, T x) { *to = x; }
#define EMULATOR_LOAD(T) inline T __ldg(const T *from) { return *from; } EMULATOR_CACHE_HINTS(T)
EMULATOR_CACHE_HINTS(int) EMULATOR_CACHE_HINTS(unsigned) EMULATOR_CACHE_HINTS(long) EMULATOR_CACHE_HINTS(unsigned long)
EMULATOR_CACHE_HINTS(long long) EMULATOR_CACHE_HINTS(unsigned long long) EMULATOR_CACHE_HINTS(float) EMULATOR_CACHE_HINTS(double)
EMULATOR_LOAD(char) EMULATOR_LOAD(signed char) EMULATOR_LOAD(unsigned char) EMULATOR_LOAD(short) EMULATOR_LOAD(unsigned short)
EMULATOR_LOAD(char2) EMULATOR_LOAD(char4) EMULATOR_LOAD(uchar2) EMULATOR_LOAD(uchar4) EMULATOR_LOAD(short2) EMULATOR_LOAD(short4)
EMULATOR_LOAD(ushort2) EMULATOR_LOAD(ushort4) EMULATOR_LOAD(int2) EMULATOR_LOAD(int4) EMULATOR_LOAD(uint2) EMULATOR_LOAD(uint4)
EMULATOR_LOAD(longlong2) EMULATOR_LOAD(ulonglong2) EMULATOR_LOAD(float2) EMULATOR_LOAD(float4) EMULATOR_LOAD(double2)
#undef EMULATOR_LOAD
#undef EMULATOR_CACHE_HINTS

#define EMULATOR_ATOMIC(T, name, expression)                                         \
    inline T name(T *at, T x) { T old = *at; *at = (expression); return old; }       \
    inline T name##_block(T *at, T x) { return name(at, x); }                        \
    inline T name##_system(T *at, T x) { return name(at, x); }
#define EMULATOR_ATOMIC_INTEGER(T)                                                   \
    EMULATOR_ATOMIC(T, atomicMin, x < old ? x : old)                                 \
    EMULATOR_ATOMIC(T, atomicMax, x > old ? x : old)                                 \
    EMULATOR_ATOMIC(T, atomicAnd, old & x)                                           \
    EMULATOR_ATOMIC(T, atomicOr, old | x)                                            \
    EMULATOR_ATOMIC(T, atomicXor, old ^ x)                                           \
    inline T atomicCAS(T *at, T compare, T x) { T old = *at; if (old == compare) *at = x; return old; }
EMULATOR_ATOMIC_INTEGER(int)
EMULATOR_ATOMIC_INTEGER(unsigned)
EMULATOR_ATOMIC_INTEGER(unsigned long long)
EMULATOR_ATOMIC(long long, atomicMin, x < old ? x : old)
EMULATOR_ATOMIC(long long, atomicMax, x > old ? x : old)
EMULATOR_ATOMIC(int, atomicAdd, (int)((unsigned)old + (unsigned)x))
EMULATOR_ATOMIC(unsigned, atomicAdd, old + x)
EMULATOR_ATOMIC(unsigned long long, atomicAdd, old + x)
EMULATOR_ATOMIC(float, atomicAdd, old + x)
EMULATOR_ATOMIC(double, atomicAdd, old + x)
EMULATOR_ATOMIC(int, atomicSub, (int)((unsigned)old - (unsigned)x))
EMULATOR_ATOMIC(unsigned, atomicSub, old - x)
EMULATOR_ATOMIC(int, atomicExch, x)
EMULATOR_ATOMIC(unsigned, atomicExch, x)
EMULATOR_ATOMIC(unsigned long long, atomicExch, x)
EMULATOR_ATOMIC(float, atomicExch, x)
EMULATOR_ATOMIC(unsigned, atomicInc, old >= x ? 0 : old + 1)
EMULATOR_ATOMIC(unsigned, atomicDec, old == 0 || old > x ? x : old - 1)
#undef EMULATOR_ATOMIC_INTEGER
#undef EMULATOR_ATOMIC

namespace emulator {
struct Sum { template <class T> static T of(T x, T y) { return x + y; } };
struct Smaller { template <class T> static T of(T x, T y) { return x < y ? x : y; } };
struct Larger { template <class T> static T of(T x, T y) { return x > y ? x : y; } };
struct BitAnd { template <class T> static T of(T x, T y) { return x & y; } };
struct BitOr { template <class T> static T of(T x, T y) { return x | y; } };
struct BitXor { template <class T> static T of(T x, T y) { return x ^ y; } };
template <class Operator, class T> inline T reduce(unsigned mask, T x, const char *name) {
    Reduction<T, Operator> mine = {x};
    runtime->warp_operation(mask, &mine, Reduction<T, Operator>::combine, name);
    return mine.value;
}
}  // namespace emulator
#define EMULATOR_REDUCE(T, name, Operator) \
    inline T name(unsigned mask, T x) { return emulator::reduce<emulator::Operator>(mask, x, #name); }
EMULATOR_REDUCE(unsigned, __reduce_add_sync, Sum)
EMULATOR_REDUCE(int, __reduce_add_sync, Sum)
EMULATOR_REDUCE(unsigned, __reduce_min_sync, Smaller)
EMULATOR_REDUCE(int, __reduce_min_sync, Smaller)
EMULATOR_REDUCE(unsigned, __reduce_max_sync, Larger)
EMULATOR_REDUCE(int, __reduce_max_sync, Larger)
EMULATOR_REDUCE(unsigned, __reduce_and_sync, BitAnd)
EMULATOR_REDUCE(unsigned, __reduce_or_sync, BitOr)
EMULATOR_REDUCE(unsigned, __reduce_xor_sync, BitXor)
#undef EMULATOR_REDUCE

// Shared memory has addresses of 32 bits of its own: here, how far from the dynamic shared memory something lies.
inline size_t __cvta_generic_to_shared(const void *address) {
    return (unsigned)((const unsigned char *)address - emulator::dynamic_shared);
}
inline void *__cvta_shared_to_generic(size_t address) { return emulator::dynamic_shared + (int)(unsigned)address; }

inline long long clock64() {
    static long long ticks = 0;
    return ++ticks;
}
inline long clock() { return (long)clock64(); }
