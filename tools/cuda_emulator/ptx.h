// Plain C++ in place of the kernels' files of inline PTX: the same functions with the same signatures.
#ifndef EMULATOR_PTX
#define EMULATOR_PTX

__device__ __forceinline__ float f16_to_float(unsigned short bits) {
    unsigned sign = (unsigned)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) return __uint_as_float(sign | __float_as_uint((float)fraction * 0x1p-24f));
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

__device__ __forceinline__ unsigned short float_to_f16(float x) {
    unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000;
    float size = __uint_as_float(bits & 0x7fffffffu);
    if (!(size <= 3.40282347e38f)) return (unsigned short)(size != size ? 0x7fff : sign | 0x7c00);
    // Adding a power of two whose last place is the last place of the result rounds to the nearest, ties to even.
    if (size < 0x1p-14f) return (unsigned short)(sign | (__float_as_uint(emulator::rounded(size + 0.5f)) - 0x3f000000u));
    unsigned wide = __float_as_uint(size);
    wide += 0xfff + (wide >> 13 & 1);
    return (unsigned short)(sign | (wide >= 0x47800000u ? 0x7c00 : (wide >> 13) - (112 << 10)));
}

__device__ __forceinline__ unsigned short float_to_bf16(float x) {
    unsigned bits = __float_as_uint(x);
    if (x != x) return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ __forceinline__ unsigned floats_to_bf16(float low, float high) {
    return float_to_bf16(low) | (unsigned)float_to_bf16(high) << 16;
}

__device__ __forceinline__ float greater(float a, float b) {
    return a != a || b != b ? __uint_as_float(0x7fffffff) : a > b ? a : b;
}

namespace emulator {

// Copies into shared memory happen when their thread waits for them, as late as on a GPU: what a kernel reads before shows.
struct Copy {
    void *to;
    const void *from;
    unsigned bytes, group;
    bool real;
};
struct Copies {
    static constexpr unsigned room = 512;
    Copy waiting[room];
    unsigned first, count, group;
    uint3 block;
    void add(void *to, const void *from, unsigned bytes, bool real) {
        static const SourceLocation *nowhere = nullptr;
        if ((unsigned long long)to % bytes || (real && (unsigned long long)from % bytes))
            runtime->fail("cp.async: both addresses must be multiples of the bytes copied", nowhere);
        if (count == room) runtime->fail("more copies into shared memory on their way than the emulator has room for", nowhere);
        waiting[(first + count++) % room] = {to, from, bytes, group, real};
    }
    void wait(unsigned groups) {
        for (; count > 0 && waiting[first].group + groups < group; first = (first + 1) % room, --count) {
            const Copy &copy = waiting[first];
            for (unsigned i = 0; i < copy.bytes / 4; ++i) ((unsigned *)copy.to)[i] = copy.real ? ((const unsigned *)copy.from)[i] : 0;
        }
    }
};
static Copies copies_of_threads[1024];
inline Copies &copies() {
    Copies &mine = copies_of_threads[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
    // What an earlier block did not wait for ended with it.
    if (mine.block.x != blockIdx.x || mine.block.y != blockIdx.y || mine.block.z != blockIdx.z) {
        mine.first = mine.count = mine.group = 0;
        mine.block.x = blockIdx.x, mine.block.y = blockIdx.y, mine.block.z = blockIdx.z;
    }
    return mine;
}

}  // namespace emulator

__device__ __forceinline__ void cp_async_4(void *to, const void *from, bool real) { emulator::copies().add(to, from, 4, real); }
__device__ __forceinline__ void cp_async_8(void *to, const void *from, bool real) { emulator::copies().add(to, from, 8, real); }
__device__ __forceinline__ void cp_async_16(void *to, const void *from, bool real) { emulator::copies().add(to, from, 16, real); }
__device__ __forceinline__ void cp_async_commit() { ++emulator::copies().group; }
template <int Groups> __device__ __forceinline__ void cp_async_wait() { emulator::copies().wait(Groups); }

namespace emulator {

// The tensor core's product of a 16 by 16 and a 16 by 8 matrix, whose parts lie in the registers of a warp as PTX lays them out.
struct MatrixProduct {
    float *sums;
    const unsigned *left, *right;
};
template <class Widen> struct MatrixProductOf {
    static void combine(void *const *payloads, unsigned mask) {
        float left[16][16], right[16][8];
        for_lanes<MatrixProduct>(payloads, mask, [&](unsigned lane, MatrixProduct &mine) {
            unsigned group = lane / 4, pair = lane % 4 * 2;
            for (unsigned half = 0; half < 2; ++half) {
                unsigned shift = 16 * half, column = pair + half;
                left[group][column] = Widen::of((unsigned short)(mine.left[0] >> shift));
                left[group + 8][column] = Widen::of((unsigned short)(mine.left[1] >> shift));
                left[group][column + 8] = Widen::of((unsigned short)(mine.left[2] >> shift));
                left[group + 8][column + 8] = Widen::of((unsigned short)(mine.left[3] >> shift));
                right[column][group] = Widen::of((unsigned short)(mine.right[0] >> shift));
                right[column + 8][group] = Widen::of((unsigned short)(mine.right[1] >> shift));
            }
        });
        for_lanes<MatrixProduct>(payloads, mask, [&](unsigned lane, MatrixProduct &mine) {
            for (unsigned i = 0; i < 4; ++i) {
                unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
                // Products of 16-bit floats are exact in f32; the tensor core's order of addition is its own.
                float sum = 0;
                for (unsigned k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
                mine.sums[i] += sum;
            }
        });
    }
};
struct WidenF16 { static float of(unsigned short bits) { return f16_to_float(bits); } };
struct WidenBf16 { static float of(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); } };
template <class Widen> inline void multiply_matrices(float *sums, const unsigned *left, const unsigned *right, const char *name) {
    MatrixProduct mine = {sums, left, right};
    runtime->warp_operation(0xffffffffu, &mine, MatrixProductOf<Widen>::combine, name);
}

// Four (or fewer) 8 by 8 matrices of 16-bit values from shared memory; lane 8m + r names row r of matrix m.
struct MatrixLoad {
    unsigned *parts;
    const unsigned short *row;
};
template <unsigned matrices, bool transposed> struct MatrixLoadOf {
    static void combine(void *const *payloads, unsigned mask) {
        for_lanes<MatrixLoad>(payloads, mask, [&](unsigned lane, MatrixLoad &mine) {
            for (unsigned matrix = 0; matrix < matrices; ++matrix) {
                auto at = [&](unsigned row, unsigned column) { return ((MatrixLoad *)payloads[matrix * 8 + row])->row[column]; };
                unsigned row = lane / 4, column = lane % 4 * 2;
                unsigned low = transposed ? at(column, row) : at(row, column);
                unsigned high = transposed ? at(column + 1, row) : at(row, column + 1);
                mine.parts[matrix] = low | high << 16;
            }
        });
    }
};
template <unsigned matrices, bool transposed> inline void load_matrices(unsigned *parts, const void *row, const char *name) {
    static const SourceLocation *nowhere = nullptr;
    if ((unsigned long long)row % 16) runtime->fail("ldmatrix: a row must lie at a multiple of 16 bytes", nowhere);
    MatrixLoad mine = {parts, (const unsigned short *)row};
    runtime->warp_operation(0xffffffffu, &mine, MatrixLoadOf<matrices, transposed>::combine, name);
}

}  // namespace emulator

__device__ __forceinline__ void ldmatrix_x4(unsigned *parts, const void *row) { emulator::load_matrices<4, false>(parts, row, "ldmatrix"); }
__device__ __forceinline__ void ldmatrix_x4_transposed(unsigned *parts, const void *row) {
    emulator::load_matrices<4, true>(parts, row, "ldmatrix");
}
__device__ __forceinline__ void mma_f16(float *sums, const unsigned *left, const unsigned *right) {
    emulator::multiply_matrices<emulator::WidenF16>(sums, left, right, "mma");
}
__device__ __forceinline__ void mma_bf16(float *sums, const unsigned *left, const unsigned *right) {
    emulator::multiply_matrices<emulator::WidenBf16>(sums, left, right, "mma");
}

#endif
