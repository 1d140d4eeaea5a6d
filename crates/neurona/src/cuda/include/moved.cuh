// Elements that copies take to another place: as bytes, or changing their type on the way.
#pragma once
#include "index.cuh"

// Bytes of what is moved at once: an element, or several neighbours that stay neighbours.
#ifndef BYTES
#define BYTES 4
#endif
// 1: elements are converted instead, one by one, from the one type to the other.
#ifndef CONVERT
#define CONVERT 0
#endif
#ifndef FROM
#define FROM float
#endif
#ifndef TO
#define TO float
#endif

#if CONVERT
typedef FROM E;
typedef TO R;
__device__ __forceinline__ R moved(E x) { return narrow<R>((Wide<R>)widen(x)); }
#else
typedef Bytes<BYTES> E;
typedef E R;
__device__ __forceinline__ R moved(const E &x) { return x; }
#endif
