// Built-in variables and vector types.
#pragma once

typedef emulator::Index uint3;
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 of) : x(of.x), y(of.y), z(of.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

static const uint3 &threadIdx = emulator::position.thread;
static const uint3 &blockIdx = emulator::position.block;
static const uint3 &blockDim = emulator::position.block_size;
static const uint3 &gridDim = emulator::position.grid_size;
static constexpr int warpSize = 32;

#define EMULATOR_VECTORS(T, name, align2, align4)                                        \
    struct name##1 { T x; };                                                             \
    struct __align__(align2) name##2 { T x, y; };                                        \
    struct __align__(align4) name##4 { T x, y, z, w; };                                  \
    inline name##1 make_##name##1(T x) { return {x}; }                                   \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                           \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                   \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMULATOR_VECTORS_WITH_3(T, name, align2, align4) \
    struct name##3 { T x, y, z; };                       \
    EMULATOR_VECTORS(T, name, align2, align4)
EMULATOR_VECTORS_WITH_3(signed char, char, 2, 4)
EMULATOR_VECTORS_WITH_3(unsigned char, uchar, 2, 4)
EMULATOR_VECTORS_WITH_3(short, short, 4, 8)
EMULATOR_VECTORS_WITH_3(unsigned short, ushort, 4, 8)
EMULATOR_VECTORS_WITH_3(int, int, 8, 16)
EMULATOR_VECTORS(unsigned, uint, 8, 16)
EMULATOR_VECTORS_WITH_3(float, float, 8, 16)
EMULATOR_VECTORS_WITH_3(double, double, 16, 16)
EMULATOR_VECTORS_WITH_3(long long, longlong, 16, 16)
EMULATOR_VECTORS_WITH_3(unsigned long long, ulonglong, 16, 16)
#undef EMULATOR_VECTORS_WITH_3
#undef EMULATOR_VECTORS
