// Counter-based random numbers: a key and a position give the same bits as on CPU cores.
#pragma once
#include "prelude.cuh"

// The finaliser of splitmix64.
__device__ __forceinline__ u64 random_mix(u64 x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The random number of a key at a position.
__device__ __forceinline__ u64 random_at(u64 key, u64 position) {
    return random_mix(key + position * 0x9E3779B97F4A7C15ull);
}

// From 0 (included) to 1 (excluded), with the 24 bits that a float can hold.
__device__ __forceinline__ float random_unit(u64 bits) { return (float)(u32)(bits >> 40) * (1.0f / (1u << 24)); }

// From 0 up to but without n.
__device__ __forceinline__ u32 random_below(u64 bits, u32 n) { return (u32)(((bits >> 32) * n) >> 32); }
