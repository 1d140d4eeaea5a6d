// The tile that the host chose for a kernel's products.
//
// TENSOR_CORES: on which units. TILE_M × TILE_N: sums of a block; SHARE_M × SHARE_N: of a thread, or of a warp on tensor
// cores; SLICES: groups of threads that share them. RESIDENT: blocks that must fit a multiprocessor together, which bounds
// the registers.
#pragma once
#include "product.cuh"

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#ifndef TILE_M
#define TILE_M 128
#define TILE_N 128
#define SHARE_M 8
#define SHARE_N 8
#define SLICES 1
#endif
#ifndef RESIDENT
#define RESIDENT 2
#endif

// LeftAcross, RightAcross: whether the operand's lines are contiguous in memory, not its depth.
#if TENSOR_CORES
#include "tensor_product.cuh"
template <class T, bool LeftAcross, bool RightAcross>
using TileOf = TensorProduct<T, TILE_M, TILE_N, SHARE_M, SHARE_N, SLICES, LeftAcross, RightAcross>;
#else
template <class T, bool LeftAcross, bool RightAcross>
using TileOf = Product<Wide<T>, TILE_M, TILE_N, SHARE_M, SHARE_N, SLICES, LeftAcross, RightAcross>;
#endif
