#!/usr/bin/env python3
"""Checks the kernels for every GPU (matrix product, convolution) against float64, and times every tile beside cuBLAS and
cuDNN: general_check.py [check] [tensor] [matmul] [conv] [--vendor] [--json FILE]"""

import json
import struct
import sys
import time

import torch
import torch.nn.functional as F
from driver import DEVICE, Kernels

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True

# Name: M, N, SHARE_M, SHARE_N, SLICES, RESIDENT. Those whose names begin with t are for tensor cores.
TILES = {
    "128x128": (128, 128, 16, 8, 1, 2),
    "128x128s": (128, 128, 8, 8, 1, 2),
    "128x64": (128, 64, 8, 8, 1, 3),
    "64x128": (64, 128, 8, 8, 1, 3),
    "64x64": (64, 64, 8, 8, 1, 6),
    "64x64s": (64, 64, 8, 4, 1, 4),
    "128x32": (128, 32, 8, 4, 1, 4),
    "32x32": (32, 32, 4, 4, 4, 2),
    "32x16": (32, 16, 4, 4, 8, 2),
    "t128x128": (128, 128, 64, 64, 1, 2),
    "t128x64": (128, 64, 64, 32, 1, 3),
    "t64x128": (64, 128, 32, 64, 1, 3),
    "t64x64": (64, 64, 32, 32, 1, 4),
    "t128x32": (128, 32, 32, 32, 1, 4),
    "t32x32": (32, 32, 32, 32, 4, 4),
}
TENSOR_TILES = [name for name in TILES if name.startswith("t")]
MACROS = "TILE_M TILE_N SHARE_M SHARE_N SLICES RESIDENT".split()
NAMES = {torch.float32: "float", torch.float64: "double", torch.float16: "f16", torch.bfloat16: "bf16"}
ALIGNED = 64
kernels = Kernels()


def ceil(a, b):
    return -(-a // b)


def up(a, b):
    return ceil(a, b) * b


def tile_macros(tile):
    return tuple(zip(MACROS, TILES[tile])) + (("TENSOR_CORES", int(tile in TENSOR_TILES)),)


def threads(tile):
    m, n, share_m, share_n, slices, _ = TILES[tile]
    return m // share_m * (n // share_n) * slices * (32 if tile in TENSOR_TILES else 1)


def run(tile):
    """Neighbours that a tile keeps together."""
    return 8 if tile in TENSOR_TILES else 4


def piece(tile, size):
    """Elements read at once where there are `size` of them in a row."""
    return next(p for p in ((8, 4, 2, 1) if tile in TENSOR_TILES else (4, 1)) if size % p == 0)


def wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def part_of(depth, parts):
    part = max(up(ceil(depth, parts), ALIGNED), ALIGNED)
    return part, max(ceil(depth, part), 1)


class Matmul:
    """One product a[batch, m, k] b[batch, k, n], stored transposed where asked."""

    def __init__(self, a, b, ta, tb, bias, relu, tile, parts):
        self.a, self.b, self.bias, self.relu, self.tile = a, b, bias, relu, tile
        m, k = (a.shape[-1], a.shape[-2]) if ta else (a.shape[-2], a.shape[-1])
        n = b.shape[-2] if tb else b.shape[-1]
        batch = max(a.shape[0] if a.dim() == 3 else 1, b.shape[0] if b.dim() == 3 else 1)
        pieces = piece(tile, a.shape[-1]), piece(tile, b.shape[-1])
        macros = [("ELEMENT", NAMES[a.dtype]), ("BIAS_ELEMENT", NAMES[bias.dtype if bias is not None else a.dtype])]
        macros += [("TRANSPOSE_A", int(ta)), ("TRANSPOSE_B", int(tb)), ("PIECE_A", pieces[0]), ("PIECE_B", pieces[1])]
        self.key = ("matmul/matmul.cu", tile_macros(tile) + tuple(macros))
        part, self.parts = part_of(k, parts)
        step = lambda x: x.shape[-1] * x.shape[-2] if x.dim() == 3 and x.shape[0] > 1 else 0
        self.sizes = struct.pack("4i2q2i", m, n, k, part, step(a), step(b), batch, int(relu))
        shape = (batch, m, n) if a.dim() == 3 else (m, n)
        self.out = torch.full(shape, float("nan"), dtype=a.dtype, device=DEVICE)
        self.sums = torch.empty(self.parts * self.out.numel(), dtype=wide(a.dtype), device=DEVICE) if self.parts > 1 else None
        self.blocks = ceil(m, TILES[tile][0]) * ceil(n, TILES[tile][1]) * batch
        self.n = n

    def run(self):
        args = [self.a, self.b, self.bias, self.out, self.sums, self.sizes]
        kernels.launch(self.key, "matmul", (self.blocks, self.parts), threads(self.tile), args)
        if self.parts > 1:
            elements = self.out.numel()
            args = [self.sums, self.bias, self.out, ("i64", elements), self.n, self.parts, int(self.relu)]
            kernels.launch(self.key, "matmul_finish", (min(ceil(elements, 256), 1 << 14),), 256, args)
        return self.out


class Shape:
    def __init__(self, n, c, h, w, k, r, s, stride=1, padding=0, dilation=1, groups=1):
        pair = lambda v: v if isinstance(v, tuple) else (v, v)
        self.n, self.c, self.h, self.w, self.k, self.r, self.s, self.groups = n, c, h, w, k, r, s, groups
        self.stride, self.padding, self.dilation = pair(stride), pair(padding), pair(dilation)
        self.p, self.q = [(size + 2 * p - d * (f - 1) - 1) // st + 1 for size, p, d, f, st in
                          zip((h, w), self.padding, self.dilation, (r, s), self.stride)]

    def bytes(self):
        fields = [self.n, self.c, self.h, self.w, self.k, self.r, self.s, self.p, self.q]
        return struct.pack("16i", *fields, *self.stride, *self.padding, *self.dilation, self.groups)

    def options(self):
        return dict(stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups)

    def flops(self):
        return 2 * self.n * self.p * self.q * self.k * self.c // self.groups * self.r * self.s


class Gather:
    """Forward, or the gradient by the input. Images are NHWC tensors, filters OIHW."""

    def __init__(self, g, images, weight, bias, scale, relu, tile, parts, input_grad):
        self.g, self.images, self.weight, self.bias, self.scale, self.relu, self.tile = g, images, weight, bias, scale, relu, tile
        inner, outer = g.c // g.groups, g.k // g.groups
        self.classes = g.stride[0] * g.stride[1] if input_grad else 1
        channels, wanted = (outer, inner) if input_grad else (inner, outer)
        rows = g.n * (ceil(g.h, g.stride[0]) * ceil(g.w, g.stride[1]) if input_grad else g.p * g.q)
        taps = g.r * g.s
        if input_grad:
            taps = 1
            for size, st, d in zip((g.r, g.s), g.stride, g.dilation):
                taps *= ceil(size, next(i for i in range(1, 1 << 20) if i * d % st == 0))
        self.deepest = taps * channels
        self.columns = up(wanted, run(tile))
        self.part, self.parts = part_of(self.deepest, parts)
        self.piece = piece(tile, channels)
        self.room = up(self.deepest, ALIGNED) + 3 * ALIGNED
        self.row_tiles = ceil(rows, TILES[tile][0])
        self.blocks = self.classes * self.row_tiles * ceil(self.columns, TILES[tile][1])
        sum_type = wide(images.dtype)
        packed = images.dtype if tile in TENSOR_TILES else sum_type
        empty = lambda count, dtype: torch.empty(count, dtype=dtype, device=DEVICE)
        self.packed = empty(self.classes * g.groups * self.room * self.columns, packed)
        self.windows = empty(self.classes * self.room // self.piece * 4, torch.int32)
        size = (g.n, g.h, g.w, g.c) if input_grad else (g.n, g.p, g.q, g.k)
        self.out = torch.full(size, float("nan"), dtype=images.dtype, device=DEVICE)
        self.sums = empty(self.parts * self.out.numel(), sum_type) if self.parts > 1 else None
        direction = ("INPUT_GRAD", int(input_grad))
        self.pack_key = ("conv2d/conv2d_pack.cu", (("WEIGHT_ELEMENT", NAMES[weight.dtype]), ("PACKED_ELEMENT", NAMES[packed]), ("PIECE", self.piece), direction))
        bias_type = NAMES[bias.dtype if bias is not None else images.dtype]
        self.key = ("conv2d/conv2d_gather.cu", tile_macros(tile) + (("ELEMENT", NAMES[images.dtype]), ("BIAS_ELEMENT", bias_type), direction, ("PIECE", self.piece)))

    def run(self):
        g, groups = self.g.bytes(), self.g.groups
        blocks = lambda elements: min(max(ceil(elements, 256), 1), 1024)
        args = [self.weight, self.scale, self.packed, self.windows, g, self.room, self.columns]
        kernels.launch(self.pack_key, "conv2d_pack", (blocks(self.deepest * self.columns), self.classes, groups + 1), 256, args)
        args = [self.images, self.packed, self.windows, self.bias, self.out, self.sums, g, self.row_tiles, self.room, self.columns, self.part, int(self.relu)]
        kernels.launch(self.key, "conv2d_gather", (self.blocks, self.parts, groups), threads(self.tile), args)
        if self.parts > 1:
            elements = self.out.numel()
            args = [self.sums, self.bias, self.out, ("i64", elements), self.out.shape[-1], self.parts, int(self.relu)]
            kernels.launch(self.key, "conv2d_finish", (min(ceil(elements, 256), 1 << 14),), 256, args)
        return self.out


class WeightGrad:
    def __init__(self, g, images, dy, out_type, bias, tile, parts):
        self.g, self.images, self.dy, self.tile = g, images, dy, tile
        self.inner, outer = g.c // g.groups, g.k // g.groups
        columns = g.r * g.s * self.inner
        self.part, self.parts = part_of(g.n * g.p * g.q, parts)
        self.blocks = ceil(outer, TILES[tile][0]) * ceil(columns, TILES[tile][1])
        empty = lambda count: torch.empty(count, dtype=wide(images.dtype), device=DEVICE)
        self.sums, self.bias_sums = empty(self.parts * g.k * columns), empty(self.parts * g.k) if bias else None
        self.out = torch.full((g.k, self.inner, g.r, g.s), float("nan"), dtype=out_type, device=DEVICE)
        self.bias = torch.full((g.k,), float("nan"), dtype=out_type, device=DEVICE) if bias else None
        self.key = ("conv2d/conv2d_weight_grad.cu", tile_macros(tile) + (("ELEMENT", NAMES[images.dtype]), ("PIECE_LEFT", piece(tile, outer)), ("PIECE_RIGHT", piece(tile, self.inner))))
        self.finish = ("conv2d/conv2d_weight_grad_finish.cu", (("SUM", NAMES[wide(images.dtype)]), ("OUT_ELEMENT", NAMES[out_type])))

    def run(self):
        g = self.g
        args = [self.images, self.dy, self.sums, self.bias_sums, g.bytes(), self.part]
        kernels.launch(self.key, "conv2d_weight_grad", (self.blocks, self.parts, g.groups), threads(self.tile), args)
        finish_weight_grad(self)
        return self.out


def finish_weight_grad(op):
    g = op.g
    args = [op.sums, op.bias_sums, op.out, op.bias, g.k, g.c // g.groups, g.r * g.s, op.parts]
    blocks = ceil(op.out.numel(), 32) + (ceil(g.k, 32) if op.bias is not None else 0)
    kernels.launch(op.finish, "conv2d_weight_grad_finish", (blocks,), 512, args)


def balanced(size, most):
    """The size of equal parts of at most `most`."""
    return ceil(size, ceil(size, most))


class Direct:
    """Forward, or the gradient by the input, for few channels."""

    def __init__(self, g, images, weight, bias, scale, relu, input_grad, thread_k=None):
        self.images, self.weight, self.bias, self.scale = images, weight, bias, scale
        sh, sw = g.stride
        if input_grad:
            span = lambda size, pad, st: [d for d in range(-size, size + pad) for a in range(st) if 0 <= a + pad - d * st < size]
            downs, sides = span(g.r, g.padding[0], sh), span(g.s, g.padding[1], sw)
            first = (min(downs), min(sides))
            rows, columns = max(downs) - first[0] + 1, max(sides) - first[1] + 1
            channels, wanted, strides, shuffle = g.k, g.c * sh * sw, (1, 1), (sh, sw)
            h, w, p, q, out_h, out_w = g.p, g.q, ceil(g.h, sh), ceil(g.w, sw), g.h, g.w
            before = (-first[0], -first[1])
        else:
            rows, columns, channels, wanted, strides, shuffle, first, before = g.r, g.s, g.c, g.k, (sh, sw), (1, 1), (0, 0), g.padding
            h, w, p, q, out_h, out_w = g.h, g.w, g.p, g.q, g.p, g.q
        plan = direct_plan(g.n, channels, wanted, rows, columns, strides, p, q, thread_k)
        self.plan = plan
        tk, bk, th, tw, chunk = plan
        width = up(wanted, tk)
        self.threads = tw // 4 * th * (bk // tk)
        self.shared = direct_shared(plan, rows, columns, strides)
        macros = dict(ELEMENT=NAMES[images.dtype], BIAS_ELEMENT=NAMES[bias.dtype if bias is not None else images.dtype], CHANNELS=channels, CHUNK=chunk, WANTED=wanted, BLOCK_K=bk, THREAD_K=tk,
                      R=rows, S=columns, STRIDE_H=strides[0], STRIDE_W=strides[1], TILE_H=th, TILE_W=tw, SHUFFLE_H=shuffle[0], SHUFFLE_W=shuffle[1])
        macros.update(WEIGHT_ELEMENT=NAMES[weight.dtype], SCALE_ELEMENT=NAMES[weight.dtype], FILTER_R=g.r, FILTER_S=g.s, PADDING_H=g.padding[0], PADDING_W=g.padding[1],
                      INPUT_GRAD=int(input_grad), FIRST_H=f"({first[0]})", FIRST_W=f"({first[1]})")
        self.key = ("conv2d/conv2d_direct.cu", tuple(macros.items()))
        self.out = torch.full((g.n, out_h, out_w, g.c if input_grad else g.k), float("nan"), dtype=images.dtype, device=DEVICE)
        tiles = ceil(p, th), ceil(q, tw)
        self.frame = struct.pack("11i", h, w, p, q, *before, out_h, out_w, *tiles, int(relu))
        self.blocks = g.n * tiles[0] * tiles[1], ceil(width, bk)
        self.parts = 1

    def run(self):
        args = [self.images, self.weight, self.scale, self.bias, self.out, self.frame]
        kernels.launch(self.key, "conv2d_direct", self.blocks, self.threads, args, self.shared)
        return self.out


def direct_shared(plan, rows, columns, strides):
    tk, bk, th, tw, chunk = plan
    under = up(3 * strides[1] + columns, 4)
    pitch = up((tw - 4) * strides[1] + under, 4)
    vector = next(v for v in (4, 2, 1) if tk % v == 0)
    return 4 * chunk * (((th - 1) * strides[0] + rows) * pitch + rows * columns * (bk + vector))


def direct_plan(n, channels, wanted, rows, columns, strides, p, q, thread_k, multiprocessors=132):
    # As many channels a thread as registers allow, fewer when there are too few pixels for all threads of the GPU.
    tk = balanced(wanted, 16)
    groups = n * p * ceil(q, 4)
    while tk > 4 and groups * ceil(wanted, tk) < multiprocessors * 256:
        tk = ceil(tk, 2)
    tk = thread_k or tk
    bk = min(up(wanted, tk), 4 * tk)
    tw = min(range(32, 3, -4), key=lambda t: ceil(q, t) * t)
    most = max(1, 256 // (tw // 4 * (bk // tk)))
    while most > 1 and n * ceil(p, most) * ceil(q, tw) * ceil(wanted, bk) < 2 * multiprocessors and tw // 4 * (bk // tk) * most > 96:
        most -= 1
    th = balanced(p, most)
    chunk = channels
    while chunk > 1 and direct_shared((tk, bk, th, tw, chunk), rows, columns, strides) > 56 << 10:
        chunk = ceil(chunk, 2)
    return tk, bk, th, tw, chunk


class DirectWeightGrad:
    def __init__(self, g, images, dy, out_type, bias):
        self.g, self.images, self.dy = g, images, dy
        tk = balanced(g.k, 64 // g.s)
        tk = tk if tk < 4 else up(tk, 2)
        units = (g.c * g.r + 1) * ceil(g.k, tk)
        tw = balanced(g.q, 128)
        bytes_of = lambda th: 4 * (th * tw * up(g.k, tk) + (g.c * ((th - 1) * g.stride[0] + g.r) + 1) * (((tw - 1) * g.stride[1] + g.s) | 1))
        th = g.p
        while th > 1 and (bytes_of(th) > 48 << 10 or g.n * ceil(g.p, th) * ceil(g.q, tw) < 132):
            th = ceil(th, 2)
        slices = max(1, min(th, 256 // units))
        slices = ceil(th, ceil(th, slices))
        self.threads = up(units * slices, 32)
        self.shared = max(bytes_of(th), 4 * (slices - 1) * g.s * tk * units)
        tiles = ceil(g.p, th), ceil(g.q, tw)
        self.parts = min(g.n * tiles[0] * tiles[1], 132 * max(2, 512 // self.threads))
        self.frame = struct.pack("9i", g.h, g.w, g.p, g.q, *g.padding, *tiles, g.n * tiles[0] * tiles[1])
        macros = dict(ELEMENT=NAMES[images.dtype], CHANNELS=g.c, WANTED=g.k, THREAD_K=tk, R=g.r, S=g.s, STRIDE_H=g.stride[0], STRIDE_W=g.stride[1], TILE_H=th, TILE_W=tw, SLICES=slices)
        self.key = ("conv2d/conv2d_direct_weight_grad.cu", tuple(macros.items()))
        self.finish = ("conv2d/conv2d_weight_grad_finish.cu", (("SUM", "float"), ("OUT_ELEMENT", NAMES[out_type])))
        empty = lambda count: torch.empty(count, device=DEVICE)
        self.sums, self.bias_sums = empty(self.parts * g.k * g.c * g.r * g.s), empty(self.parts * g.k) if bias else None
        self.out = torch.full((g.k, g.c, g.r, g.s), float("nan"), dtype=out_type, device=DEVICE)
        self.bias = torch.full((g.k,), float("nan"), dtype=out_type, device=DEVICE) if bias else None

    def run(self):
        args = [self.images, self.dy, self.sums, self.bias_sums, self.frame]
        kernels.launch(self.key, "conv2d_direct_weight_grad", (self.parts,), self.threads, args, self.shared)
        finish_weight_grad(self)
        return self.out


class Depthwise:
    def __init__(self, g, images, weight, bias, scale, relu, input_grad):
        v = next(v for v in (4, 2, 1) if g.c % v == 0)
        name = lambda t, other: NAMES[t.dtype if t is not None else other.dtype]
        macros = dict(ELEMENT=NAMES[images.dtype], WEIGHT_ELEMENT=NAMES[weight.dtype], SCALE_ELEMENT=name(scale, weight), BIAS_ELEMENT=name(bias, images), R=g.r, S=g.s, V=v, INPUT_GRAD=int(input_grad))
        self.key = ("conv2d/conv2d_depthwise.cu", tuple(macros.items()))
        size = (g.n, g.h, g.w, g.c) if input_grad else (g.n, g.p, g.q, g.k)
        self.out = torch.full(size, float("nan"), dtype=images.dtype, device=DEVICE)
        columns = ceil(g.c, 8 * v)
        self.blocks = max(1, min(ceil(self.out.numel() // g.c, 32), ceil(32 * 132, columns))), columns
        self.args = [images, weight, scale, bias, self.out, g.bytes(), int(relu)]

    def run(self):
        kernels.launch(self.key, "conv2d_depthwise", self.blocks, 256, self.args)
        return self.out


class DepthwiseWeightGrad:
    def __init__(self, g, images, dy, out_type, bias):
        self.g, pixels, columns = g, g.n * g.p * g.q, ceil(g.c, 32)
        part = ceil(pixels, max(1, min(ceil(pixels, 64), ceil(16 * 132, columns))))
        self.parts = ceil(pixels, part)
        self.key = ("conv2d/conv2d_depthwise_weight_grad.cu", (("ELEMENT", NAMES[images.dtype]), ("R", g.r), ("S", g.s)))
        self.finish = ("conv2d/conv2d_weight_grad_finish.cu", (("SUM", NAMES[wide(images.dtype)]), ("OUT_ELEMENT", NAMES[out_type])))
        empty = lambda count: torch.empty(count, dtype=wide(images.dtype), device=DEVICE)
        self.sums, self.bias_sums = empty(self.parts * g.c * g.r * g.s), empty(self.parts * g.c) if bias else None
        self.out = torch.full((g.k, 1, g.r, g.s), float("nan"), dtype=out_type, device=DEVICE)
        self.bias = torch.full((g.k,), float("nan"), dtype=out_type, device=DEVICE) if bias else None
        self.blocks, self.args = (self.parts, columns), [images, dy, self.sums, self.bias_sums, g.bytes(), part]

    def run(self):
        kernels.launch(self.key, "conv2d_depthwise_weight_grad", self.blocks, 256, self.args)
        finish_weight_grad(self)
        return self.out


def error(out, reference):
    if not torch.isfinite(out).all():
        return float("inf")
    return float((out.double() - reference).abs().max() / reference.abs().max().clamp_min(1e-30))


LIMIT = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 2e-2}
worst = {}


def expect(what, out, reference, dtype):
    e = error(out, reference)
    worst[what.split()[0]] = max(worst.get(what.split()[0], 0), e if dtype == torch.float32 else 0)
    if not e < LIMIT[dtype]:
        print(f"WRONG {what}: {e:.3g}", flush=True)
        failures.append(what)


failures = []
CHECK_SHAPES = [
    Shape(2, 4, 9, 7, 8, 3, 3, 1, 1), Shape(2, 3, 12, 11, 5, 5, 5), Shape(3, 8, 10, 13, 12, 3, 3, 2, 1), Shape(1, 6, 9, 9, 10, 3, 2, (2, 1), (1, 0), (1, 2)),
    Shape(2, 8, 7, 7, 8, 3, 3, 1, 1, 2, 2), Shape(2, 6, 8, 8, 9, 3, 3, 3, 2, 2, 3), Shape(2, 5, 6, 6, 5, 3, 3, 1, 1, 1, 5), Shape(4, 16, 5, 5, 4, 1, 1, 2),
    Shape(2, 12, 17, 5, 36, 7, 5, (3, 2), (3, 2)), Shape(3, 3, 33, 31, 64, 7, 7, 2, 3), Shape(70, 20, 3, 3, 40, 3, 3, 1, 1), Shape(5, 7, 1, 1, 3, 1, 1), Shape(1, 4, 4, 4, 4, 2, 2, 5, 3),
    Shape(2, 40, 9, 8, 40, 3, 3, 1, 1, 1, 40), Shape(3, 6, 11, 7, 6, 5, 3, 2, 2, 1, 6), Shape(2, 4, 9, 9, 4, 3, 3, 1, 2, 2, 4),
]


def check(dtypes, tiles):
    random = lambda *s, dtype: torch.randn(*s, dtype=torch.float32, device=DEVICE).to(dtype)
    for dtype in dtypes:
        for tile in tiles:
            if dtype == torch.float64 and tile.startswith("128"):
                continue
            for m, n, k, batch in ((5, 7, 3, 1), (128, 10, 256, 1), (130, 260, 72, 1), (33, 65, 129, 3), (64, 64, 0, 1), (1, 1, 1000, 1), (300, 36, 500, 2)):
                for ta in (0, 1):
                    for tb in (0, 1):
                        for parts in (1, 3):
                            lead = () if batch == 1 else (batch,)
                            a = random(*lead, *((k, m) if ta else (m, k)), dtype=dtype)
                            b = random(*(lead if k != 129 else (1,)), *((n, k) if tb else (k, n)), dtype=dtype)
                            bias = random(n, dtype=torch.float32 if k == 72 and dtype != torch.float64 else dtype)
                            out = Matmul(a, b, ta, tb, bias, k == 129, tile, parts).run()
                            ref = (a.mT if ta else a).double() @ (b.mT if tb else b).double() + bias.double()
                            expect(f"matmul {tile} {dtype} {m, n, k, batch, ta, tb, parts}", out, ref.relu() if k == 129 else ref, dtype)
            for g in CHECK_SHAPES:
                weight_type = torch.float32 if dtype in (torch.float16, torch.bfloat16) and g.c != 4 else dtype
                x, w = random(g.n, g.h, g.w, g.c, dtype=dtype), random(g.k, g.c // g.groups, g.r, g.s, dtype=weight_type)
                dy, bias, scale = random(g.n, g.p, g.q, g.k, dtype=dtype), random(g.k, dtype=weight_type), random(g.k, dtype=weight_type)
                xn, dyn = x.double().permute(0, 3, 1, 2), dy.double().permute(0, 3, 1, 2)
                nhwc = lambda t: t.permute(0, 2, 3, 1)
                for parts in (1, 3):
                    ref = F.conv2d(xn, w.double() * scale.double().view(-1, 1, 1, 1), bias.double(), **g.options()).relu()
                    what = f"{tile} {dtype} {vars(g)} {parts}"
                    expect("forward " + what, Gather(g, x, w, bias, scale, True, tile, parts, False).run(), nhwc(ref), dtype)
                    back = lambda mask: torch.ops.aten.convolution_backward(dyn, xn, w.double(), [g.k], g.stride, g.padding, g.dilation, False, [0, 0], g.groups, mask)
                    dx, dw, db = back([True, True, True])
                    expect("input_grad " + what, Gather(g, dy, w, None, None, False, tile, parts, True).run(), nhwc(dx), dtype)
                    grad = WeightGrad(g, x, dy, weight_type, True, tile, parts)
                    expect("weight_grad " + what, grad.run(), dw, dtype)
                    expect("bias_grad " + what, grad.bias, db, dtype)
    for dtype in dtypes:
        for g in CHECK_SHAPES:
            depthwise = g.groups == g.c == g.k
            if not depthwise and (g.groups > 1 or g.dilation != (1, 1) or dtype == torch.float64):
                continue
            weight_type = torch.float64 if dtype == torch.float64 else torch.float32
            x, w = random(g.n, g.h, g.w, g.c, dtype=dtype), random(g.k, g.c // g.groups, g.r, g.s, dtype=weight_type)
            dy, bias, scale = random(g.n, g.p, g.q, g.k, dtype=dtype), random(g.k, dtype=dtype), random(g.k, dtype=weight_type)
            xn, dyn = x.double().permute(0, 3, 1, 2), dy.double().permute(0, 3, 1, 2)
            nhwc = lambda t: t.permute(0, 2, 3, 1)
            ref = F.conv2d(xn, w.double() * scale.double().view(-1, 1, 1, 1), bias.double(), **g.options()).relu()
            what = f"direct {dtype} {vars(g)}"
            forward, weight_grad = (Depthwise, DepthwiseWeightGrad) if depthwise else (Direct, DirectWeightGrad)
            expect("forward " + what, forward(g, x, w, bias, scale, True, False).run(), nhwc(ref), dtype)
            dx, dw, db = torch.ops.aten.convolution_backward(dyn, xn, w.double(), [g.k], g.stride, g.padding, g.dilation, False, [0, 0], g.groups, [True] * 3)
            expect("input_grad " + what, forward(g, dy, w, None, None, False, True).run(), nhwc(dx), dtype)
            if depthwise or g.c * g.r <= 64 and g.s <= 16:
                grad = weight_grad(g, x, dy, weight_type, True)
                expect("weight_grad " + what, grad.run(), dw, dtype)
                expect("bias_grad " + what, grad.bias, db, dtype)
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def graph_ms(f, n):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        f()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            f()
    times = []
    for _ in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) / n)
    return sorted(times)[2]


def repeats(flops):
    return max(2, min(20, int(2e10 / max(flops, 1))))


MATMULS = [(4096, 4096, 4096, 0, 0), (4096, 4096, 4096, 0, 1), (4096, 4096, 4096, 1, 0), (128, 512, 784, 0, 1), (128, 256, 512, 0, 1), (128, 10, 256, 0, 1),
           (512, 784, 128, 1, 0), (10, 256, 128, 1, 0), (128, 256, 10, 0, 0), (4096, 512, 784, 0, 1), (512, 784, 4096, 1, 0), (4096, 512, 256, 0, 0), (10, 256, 4096, 1, 0), (4096, 10, 256, 0, 1)]


def bench_matmul(record):
    for m, n, k, ta, tb in MATMULS:
        a = torch.randn((k, m) if ta else (m, k), device=DEVICE)
        b = torch.randn((n, k) if tb else (k, n), device=DEVICE)
        count = repeats(2 * m * n * k)
        vendor = graph_ms(lambda: (a.mT if ta else a) @ (b.mT if tb else b), count)
        found = []
        for tile in TILES:
            if tile in TENSOR_TILES:
                continue
            if m * n >= 1 << 20 and tile.startswith("32") or m * n < 1 << 18 and tile.startswith("128"):
                continue
            blocks = ceil(m, TILES[tile][0]) * ceil(n, TILES[tile][1])
            if blocks * k > 3e6 and tile in ("32x32", "32x16", "128x32"):
                continue
            for parts in {1, 2, 4, 8, 16, 32} if blocks < 264 and k >= 256 else {1}:
                if part_of(k, parts)[1] != parts or parts * blocks > 5000:
                    continue
                op = Matmul(a, b, ta, tb, None, False, tile, parts)
                found.append((graph_ms(op.run, count), tile, parts))
        found.sort()
        record("matmul", f"{m}x{n}x{k} {'nt'[ta]}{'nt'[tb]}", 2 * m * n * k, vendor, found)


CONV = {"lab_conv1": (128, 3, 32, 32, 6, 5, 1, 0), "lab_conv2": (128, 6, 14, 14, 16, 5, 1, 0), "air_1a": (2000, 24, 31, 31, 64, 3, 1, 1), "air_1b": (2000, 64, 15, 15, 64, 3, 1, 1),
        "air_2a": (2000, 64, 15, 15, 256, 3, 1, 1), "air_2b": (2000, 256, 7, 7, 256, 3, 1, 1), "air_3b": (2000, 256, 3, 3, 256, 3, 1, 1), "r18_64": (512, 64, 32, 32, 64, 3, 1, 1),
        "r18_128s2": (512, 64, 32, 32, 128, 3, 2, 1), "r18_256": (512, 256, 8, 8, 256, 3, 1, 1), "r18_512": (512, 512, 4, 4, 512, 3, 1, 1), "r50_7x7": (128, 3, 224, 224, 64, 7, 2, 3),
        "r50_1x1": (128, 256, 56, 56, 64, 1, 1, 0), "r50_3x3": (128, 128, 28, 28, 128, 3, 1, 1)}


def candidates(name, what, g, x, weight, dy):
    """What is timed for one pass of one convolution."""
    small = name.startswith("lab")
    if what == "fwd" and (g.c <= 4 or g.k <= 16):
        yield "direct", Direct(g, x, weight, None, None, False, False)
        if small:
            yield "direct2", Direct(g, x, weight, None, None, False, False, ceil(g.k, 2))
    if what == "dgrad" and g.c * g.stride[0] * g.stride[1] <= 16:
        yield "direct", Direct(g, dy, weight, None, None, False, True)
    if what == "wgrad" and g.c * g.r <= 32 and g.c <= 8:
        yield "direct", DirectWeightGrad(g, x, dy, torch.float32, False)
    for tile in TILES:
        if tile in TENSOR_TILES or small != (tile == "32x32") or tile == "32x16":
            continue
        wanted = g.c if what == "dgrad" else g.k
        if wanted <= 64 and TILES[tile][1] == 128 and what != "wgrad" or wanted <= 64 and TILES[tile][0] >= 128 and what == "wgrad":
            continue
        if what == "wgrad":
            blocks = ceil(g.k, TILES[tile][0]) * ceil(g.c * g.r * g.s, TILES[tile][1])
            slots = 132 * TILES[tile][5]
            for parts in sorted({max(1, slots // blocks), max(1, 2 * slots // blocks)}):
                yield tile, WeightGrad(g, x, dy, torch.float32, False, tile, parts)
        else:
            yield tile, Gather(g, x if what == "fwd" else dy, weight, None, None, False, tile, 1, what == "dgrad")


def shapes():
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else CONV
    for name, (n, c, h, w, k, r, st, p) in CONV.items():
        if name not in only:
            continue
        yield name, Shape(n, c, h, w, k, r, r, st, p)


def conv_keys():
    """The kernels that `bench_conv` needs, found without a GPU's memory."""
    for name, g in shapes():
        x, weight, dy = [torch.empty(*s, device="meta") for s in ((g.n, g.h, g.w, g.c), (g.k, g.c, g.r, g.s), (g.n, g.p, g.q, g.k))]
        for what in ("fwd", "dgrad", "wgrad"):
            for _, op in candidates(name, what, g, x, weight, dy):
                yield from (getattr(op, key) for key in ("key", "pack_key", "finish") if hasattr(op, key))


def bench_conv(record, vendor_table, vendor_now):
    for name, g in shapes():
        x, weight = torch.randn(g.n, g.h, g.w, g.c, device=DEVICE), torch.randn(g.k, g.c, g.r, g.s, device=DEVICE) * 0.05
        dy = torch.randn(g.n, g.p, g.q, g.k, device=DEVICE)
        xn, dyn, wn = x.permute(0, 3, 1, 2), dy.permute(0, 3, 1, 2), weight.to(memory_format=torch.channels_last)
        count = repeats(g.flops())
        back = lambda mask: torch.ops.aten.convolution_backward(dyn, xn, wn, None, g.stride, g.padding, [1, 1], False, [0, 0], 1, mask)
        passes = {"fwd": lambda: F.conv2d(xn, wn, None, g.stride, g.padding), "dgrad": lambda: back([True, False, False])[0], "wgrad": lambda: back([False, True, False])[1]}
        for what, reference in passes.items():
            found = []
            want = reference().double()
            want = want if what == "wgrad" else want.permute(0, 2, 3, 1)
            for tile, op in candidates(name, what, g, x, weight, dy):
                found.append((graph_ms(op.run, count), tile, op.parts))
                e = error(op.out, want)
                if not e < 3e-4:
                    print(f"WRONG {what} {name} {tile}: {e:.3g}")
                    failures.append(name)
                del op
            found.sort()
            vendor = graph_ms(reference, count) if vendor_now else vendor_table[name][f"{what}_ms"]
            record(what, name, g.flops(), vendor, found)
            del want
            torch.cuda.empty_cache()


def main():
    args = sys.argv[1:]
    started = time.time()
    lines, ratios = [], {}

    def record(kind, name, flops, vendor, found):
        ms, tile, parts = found[0]
        ratios.setdefault(kind, []).append(vendor / ms)
        lines.append(dict(kind=kind, name=name, vendor_ms=round(vendor, 5), found=[(round(t, 5), tile, parts) for t, tile, parts in found]))
        others = " ".join(f"{tile}/{parts}:{t * 1e3:.1f}" for t, tile, parts in found[1:5])
        print(f"{kind:7} {name:22} {ms * 1e3:8.1f} us {flops / ms / 1e9:5.1f} TFLOP/s vendor {vendor * 1e3:8.1f} us ratio {vendor / ms:5.2f}  {tile}/{parts}   {others}", flush=True)

    if "tensor" in args:
        tiles = [tile for tile in TENSOR_TILES if tile in args] or TENSOR_TILES
        check([torch.bfloat16 if "bf16" in args else torch.float16], tiles)
        print(f"checked, {len(failures)} wrong, {time.time() - started:.1f} s", flush=True)
        return
    if "quick" in args:
        check([torch.float32], ["64x64"])
        check([torch.float32], ["32x16"])
        print(f"checked, {len(failures)} wrong, worst f32 {worst}, {time.time() - started:.1f} s", flush=True)
        return
    everything = [("matmul/matmul.cu", tile_macros(t) + tuple(zip(("ELEMENT", "BIAS_ELEMENT", "TRANSPOSE_A", "TRANSPOSE_B", "PIECE_A", "PIECE_B"), ("float", "float", ta, tb, va, vb))))
                  for t in TILES if t not in TENSOR_TILES for ta, tb in ((0, 0), (0, 1), (1, 0)) for va in (1, 4) for vb in (1, 4)]
    global DEVICE
    device, DEVICE = DEVICE, "meta"
    if "--only" in args:
        del MATMULS[4:9], MATMULS[-2:]
    everything = [key for key in everything if "matmul" in args and key[1][-2:] == (("PIECE_A", 4), ("PIECE_B", 4))] + list(conv_keys() if "conv" in args else [])
    DEVICE = device
    kernels.compile_all(everything)
    print(f"compiled {len(set(everything))} in {time.time() - started:.1f} s", flush=True)
    if "check" in args:
        check([torch.float32, torch.float64, torch.bfloat16, torch.float16], ["128x128", "64x64", "32x16"])
        check([torch.float32], ["128x64", "32x32"])
        check([torch.bfloat16, torch.float16], TENSOR_TILES)
        print(f"checked, {len(failures)} wrong, worst f32 {worst}, {time.time() - started:.1f} s", flush=True)
    if "matmul" in args:
        bench_matmul(record)
    if "conv" in args:
        table = {}
        if "--vendor" not in args:
            rows = [json.loads(line) for line in open(args[args.index("--table") + 1])]
            table = {row["conv"]: row for row in rows if row["dtype"] == "float32"}
        bench_conv(record, table, "--vendor" in args)
    product = lambda values: torch.tensor(values).log().mean().exp().item()
    for kind, values in ratios.items():
        print(f"{kind}: geometric mean {product(values):.3f}")
    conv = [v for kind in ("fwd", "dgrad", "wgrad") for v in ratios.get(kind, [])]
    if conv:
        print(f"convolutions: geometric mean {product(conv):.3f}")
    print(f"{len(failures)} wrong; worst f32 error {worst}; {time.time() - started:.1f} s")
    if "--json" in args:
        with open(args[args.index("--json") + 1], "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
