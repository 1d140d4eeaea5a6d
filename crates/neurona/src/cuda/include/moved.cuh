// Elements that copies take to another place: as bytes, or changing their type on the way.
#pragma once
#include "index.cuh"

// Bytes of what is moved at once: an element, or several neighbours that stay neighbours. With ELEMENT and
// RESULT_ELEMENT each is converted from the one type to the other instead.
#ifndef BYTES
#define BYTES 4
#endif

#ifdef ELEMENT
typedef ELEMENT E;
typedef RESULT_ELEMENT R;
__device__ __forceinline__ R moved(E x) { return narrow<R>((Wide<R>)widen(x)); }
#else
typedef Bytes<BYTES> E;
typedef E R;
__device__ __forceinline__ R moved(const E &x) { return x; }
#endif
