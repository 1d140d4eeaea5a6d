// Built-in arithmetic. The fast approximations (__expf and so on) are exact here: kernels must not depend on their errors.
#pragma once

#define EMULATOR_UNARY(name)                                                  \
    extern "C" double name(double) noexcept;                                  \
    extern "C" float name##f(float) noexcept;                                 \
    inline float name(float x) { return name##f(x); }
#define EMULATOR_BINARY(name)                                                 \
    extern "C" double name(double, double) noexcept;                          \
    extern "C" float name##f(float, float) noexcept;                          \
    inline float name(float x, float y) { return name##f(x, y); }
EMULATOR_UNARY(sqrt) EMULATOR_UNARY(cbrt) EMULATOR_UNARY(exp) EMULATOR_UNARY(exp2) EMULATOR_UNARY(expm1)
EMULATOR_UNARY(log) EMULATOR_UNARY(log2) EMULATOR_UNARY(log10) EMULATOR_UNARY(log1p)
EMULATOR_UNARY(sin) EMULATOR_UNARY(cos) EMULATOR_UNARY(tan) EMULATOR_UNARY(asin) EMULATOR_UNARY(acos) EMULATOR_UNARY(atan)
EMULATOR_UNARY(sinh) EMULATOR_UNARY(cosh) EMULATOR_UNARY(tanh) EMULATOR_UNARY(asinh) EMULATOR_UNARY(acosh) EMULATOR_UNARY(atanh)
EMULATOR_UNARY(erf) EMULATOR_UNARY(erfc) EMULATOR_UNARY(tgamma) EMULATOR_UNARY(lgamma)
EMULATOR_UNARY(floor) EMULATOR_UNARY(ceil) EMULATOR_UNARY(trunc) EMULATOR_UNARY(round) EMULATOR_UNARY(rint) EMULATOR_UNARY(nearbyint)
EMULATOR_UNARY(fabs)
EMULATOR_BINARY(pow) EMULATOR_BINARY(fmod) EMULATOR_BINARY(remainder) EMULATOR_BINARY(atan2) EMULATOR_BINARY(hypot)
EMULATOR_BINARY(fmin) EMULATOR_BINARY(fmax) EMULATOR_BINARY(fdim) EMULATOR_BINARY(copysign) EMULATOR_BINARY(nextafter)
#undef EMULATOR_UNARY
#undef EMULATOR_BINARY
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" int abs(int) noexcept;
extern "C" long long llabs(long long) noexcept;
extern "C" long long llrintf(float) noexcept;
extern "C" long long llrint(double) noexcept;
extern "C" int printf(const char *, ...);
inline long long abs(long long x) { return llabs(x); }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float normcdff(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }
inline double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
inline float sinpif(float x) { return (float)sin(3.14159265358979323846 * (double)x); }
inline float cospif(float x) { return (float)cos(3.14159265358979323846 * (double)x); }
inline void sincosf(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline void sincos(double x, double *sine, double *cosine) { *sine = sin(x), *cosine = cos(x); }
inline void sincospif(float x, float *sine, float *cosine) { *sine = sinpif(x), *cosine = cospif(x); }
template <class T> inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> inline bool signbit(T x) { return __builtin_signbit(x); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline void __sincosf(float x, float *sine, float *cosine) { sincosf(x, sine, cosine); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// Each of these rounds by itself and is never fused.
inline float __fadd_rn(float x, float y) { return emulator::rounded(emulator::rounded(x) + emulator::rounded(y)); }
inline float __fsub_rn(float x, float y) { return emulator::rounded(emulator::rounded(x) - emulator::rounded(y)); }
inline float __fmul_rn(float x, float y) { return emulator::rounded(x * y); }
inline float __fdiv_rn(float x, float y) { return emulator::rounded(x / y); }
inline float __frcp_rn(float x) { return emulator::rounded(1.0f / x); }
inline float __fsqrt_rn(float x) { return emulator::rounded(sqrtf(x)); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __fmaf_rn(float x, float y, float z) { return emulator::rounded(fmaf(x, y, z)); }
inline double __dadd_rn(double x, double y) { return emulator::rounded(emulator::rounded(x) + emulator::rounded(y)); }
inline double __dsub_rn(double x, double y) { return emulator::rounded(emulator::rounded(x) - emulator::rounded(y)); }
inline double __dmul_rn(double x, double y) { return emulator::rounded(x * y); }
inline double __ddiv_rn(double x, double y) { return emulator::rounded(x / y); }
inline double __drcp_rn(double x) { return emulator::rounded(1.0 / x); }
inline double __dsqrt_rn(double x) { return emulator::rounded(sqrt(x)); }
inline double __fma_rn(double x, double y, double z) { return emulator::rounded(fma(x, y, z)); }

inline int __float_as_int(float x) { return emulator::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::bit_cast<double>(x); }
inline int __double2hiint(double x) { return (int)(emulator::bit_cast<unsigned long long>(x) >> 32); }
inline int __double2loint(double x) { return (int)emulator::bit_cast<unsigned long long>(x); }
inline double __hiloint2double(int high, int low) {
    return emulator::bit_cast<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

namespace emulator {
// A GPU's conversion to an integer gives the nearest value in range, and 0 for not-a-number.
template <class To, class From> inline To saturating(From x) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr int bits = sizeof(To) * 8 - is_signed;
    constexpr To highest = (To)(((unsigned long long)1 << (bits - 1)) - 1 + ((unsigned long long)1 << (bits - 1)));
    constexpr To lowest = is_signed ? (To)(-highest - 1) : (To)0;
    if (x != x) return 0;
    if (x >= (From)highest) return highest;
    if (x <= (From)lowest) return lowest;
    return (To)x;
}
}  // namespace emulator
#define EMULATOR_CONVERSIONS(From, from, To, to, suffix)                                                    \
    inline To __##from##2##to##_rn(From x) { return emulator::saturating<To>(rint##suffix(x)); }            \
    inline To __##from##2##to##_rz(From x) { return emulator::saturating<To>(trunc##suffix(x)); }           \
    inline To __##from##2##to##_rd(From x) { return emulator::saturating<To>(floor##suffix(x)); }           \
    inline To __##from##2##to##_ru(From x) { return emulator::saturating<To>(ceil##suffix(x)); }
EMULATOR_CONVERSIONS(float, float, int, int, f)
EMULATOR_CONVERSIONS(float, float, unsigned, uint, f)
EMULATOR_CONVERSIONS(float, float, long long, ll, f)
EMULATOR_CONVERSIONS(float, float, unsigned long long, ull, f)
EMULATOR_CONVERSIONS(double, double, int, int, )
EMULATOR_CONVERSIONS(double, double, unsigned, uint, )
EMULATOR_CONVERSIONS(double, double, long long, ll, )
EMULATOR_CONVERSIONS(double, double, unsigned long long, ull, )
#undef EMULATOR_CONVERSIONS
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline double __ull2double_rn(unsigned long long x) { return (double)x; }

inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned choice = selector >> 4 * i & 0xf;
        unsigned byte = (unsigned)(bytes >> 8 * (choice & 7)) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

#define EMULATOR_MIN_MAX(A, B, R)                                          \
    constexpr R min(A x, B y) { return (R)x < (R)y ? (R)x : (R)y; }        \
    constexpr R max(A x, B y) { return (R)x > (R)y ? (R)x : (R)y; }
EMULATOR_MIN_MAX(int, int, int)
EMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
EMULATOR_MIN_MAX(int, unsigned, unsigned)
EMULATOR_MIN_MAX(unsigned, int, unsigned)
EMULATOR_MIN_MAX(long, long, long)
EMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMULATOR_MIN_MAX(long, unsigned long, unsigned long)
EMULATOR_MIN_MAX(unsigned long, long, unsigned long)
EMULATOR_MIN_MAX(long long, long long, long long)
EMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
EMULATOR_MIN_MAX(long long, unsigned long long, unsigned long long)
EMULATOR_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef EMULATOR_MIN_MAX
// On floating point the built-in min and max pass over not-a-number, as fminf and fmaxf do.
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
inline double min(float x, double y) { return fmin((double)x, y); }
inline double max(float x, double y) { return fmax((double)x, y); }
inline double min(double x, float y) { return fmin(x, (double)y); }
inline double max(double x, float y) { return fmax(x, (double)y); }
