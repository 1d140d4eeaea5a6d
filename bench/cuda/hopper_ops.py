"""Launch plans of the Hopper kernels: what the Rust launcher does, in Python, for checks and measurements."""
import math, struct
import torch
from hopper_driver import function, launch, pixel_map, tiled_map

SMS = 132
ELEMENT = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "float"}
DEFAULTS = dict(TILE_M=128, TILE_N=128, GROUPS_M=2, GROUPS_N=1, DEPTH=64, A_CHUNK=64, B_CHUNK=64, STAGES=3, BLOCKS_PER_SM=2, OUT_BUFFERS=1)


class Config:
    def __init__(self, output=1, **macros):
        self.__dict__.update({k: macros.get(k, v) for k, v in DEFAULTS.items()})
        self.output, self.macros = output, macros
        self.groups = self.GROUPS_M * self.GROUPS_N
        self.threads = 128 * self.groups + 32
        self.out_chunk = 32 if self.TILE_N // self.GROUPS_N < 64 else 64
        self.shared = self.STAGES * ((self.TILE_M + self.TILE_N) * 2 * self.DEPTH + 16) + output * self.groups * self.OUT_BUFFERS * 128 * self.out_chunk

    def fits(self):
        return (self.shared + 1024) * self.BLOCKS_PER_SM <= 233472

    def name(self):
        return f"{self.TILE_M}x{self.TILE_N}/{self.GROUPS_M}{self.GROUPS_N} s{self.STAGES} b{self.BLOCKS_PER_SM} k{self.B_CHUNK}"


def address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


def ceil(a, b):
    return -(-a // b)


def grid_of(config, tiles, persistent):
    """Persistent: as many blocks as fit at once."""
    return (min(tiles, SMS * config.BLOCKS_PER_SM) if persistent else tiles,)


# ---- matrix product ----
def matmul(a, b, out, config, a_rows, b_rows, bias=None, relu=0, persistent=True, extra={}):
    """out[m, n] = A B. a is [k, m] if a_rows else [m, k]; b is [k, n] if b_rows else [n, k]."""
    e = ELEMENT[a.dtype]
    m, k = (a.shape[1], a.shape[0]) if a_rows else a.shape
    n = b.shape[1] if b_rows else b.shape[0]
    c = config
    f = function("ops/matmul/matmul_hopper.cu", "matmul_hopper", dict(c.macros, ELEMENT=e, A_ROWS=a_rows, B_ROWS=b_rows, **extra), c.shared)
    map_a = tiled_map(e, a.data_ptr(), (m, k) if a_rows else (k, m), (c.A_CHUNK, c.DEPTH if a_rows else c.TILE_M))
    map_b = tiled_map(e, b.data_ptr(), (n, k) if b_rows else (k, n), (c.B_CHUNK, c.DEPTH if b_rows else c.TILE_N))
    map_out = tiled_map(e, out.data_ptr(), (n, m), (c.out_chunk, 64))
    tiles = ceil(m, c.TILE_M) * ceil(n, c.TILE_N)
    arguments = [map_a, map_b, map_out, address(bias), ("i", m), ("i", n), ("i", k), ("i", relu)]
    return lambda: launch(f, grid_of(c, tiles, persistent), (c.threads,), c.shared, arguments)


def matmul_shares(a, b, out, config, a_rows, b_rows, bias=None, relu=0, extra={}):
    """The same for few tiles and long sums."""
    e, c = ELEMENT[a.dtype], config
    m, k = (a.shape[1], a.shape[0]) if a_rows else a.shape
    n = b.shape[1] if b_rows else b.shape[0]
    macros = dict(c.macros, ELEMENT=e, A_ROWS=a_rows, B_ROWS=b_rows, OUTPUT=0, OUT_ELEMENT=ELEMENT[out.dtype], **extra)
    f = function("ops/matmul/matmul_hopper.cu", "matmul_hopper_shares", macros, c.shared)
    add = function("ops/matmul/matmul_hopper.cu", "matmul_hopper_sum", macros)
    map_a = tiled_map(e, a.data_ptr(), (m, k) if a_rows else (k, m), (c.A_CHUNK, c.DEPTH if a_rows else c.TILE_M))
    map_b = tiled_map(e, b.data_ptr(), (n, k) if b_rows else (k, n), (c.B_CHUNK, c.DEPTH if b_rows else c.TILE_N))
    tiles_m, tiles_n, steps = ceil(m, c.TILE_M), ceil(n, c.TILE_N), ceil(k, c.DEPTH)
    shares = max(1, min(SMS * c.BLOCKS_PER_SM, tiles_m * tiles_n * steps // 4))
    slots = torch.empty((shares + tiles_m * tiles_n) * c.TILE_M * c.TILE_N, device=a.device, dtype=torch.float32).fill_(float("nan"))
    slices = slices_for(shares, tiles_m * tiles_n)
    def go():
        launch(f, (shares,), (c.threads,), c.shared, [map_a, map_b, slots.data_ptr(), ("i", tiles_m), ("i", tiles_n), ("i", steps)])
        launch(add, (ceil(m * n // 4, 32),), (32, slices), 0, [slots.data_ptr(), address(bias), out.data_ptr()] + [("i", v) for v in (m, n, tiles_m, tiles_n, steps, shares, relu)])
    return go


def slices_for(shares, tiles):
    """Warps that add one element's slots: about four slots each."""
    slices = 1
    while slices < 32 and slices * 4 < shares / tiles + 1:
        slices *= 2
    return slices


# ---- convolution ----
def pack(weights, packed, transposed):
    k, c, r, s = weights.shape
    macros = dict(ELEMENT=ELEMENT[packed.dtype], WEIGHT_ELEMENT=ELEMENT[weights.dtype])
    f = function("ops/conv2d/conv2d_hopper_pack.cu", "conv2d_hopper_transpose" if transposed else "conv2d_hopper_pack", macros)
    pointers = [weights.data_ptr(), packed.data_ptr()]
    if transposed:
        return lambda: launch(f, (ceil(c * r * s, 32), ceil(k, 32)), (32, 8), 0, pointers + [("i", k), ("i", c * r * s)])
    return lambda: launch(f, (min(ceil(k * c, 128), 4096),), (128,), 0, pointers + [("i", k), ("i", c), ("i", r * s)])


def forward_parts(h, w, r, s, stride, pad, dilation, p, q):
    return [dict(height=p, width=q, low=(-pad[0], -pad[1]), step=stride, out=(0, 0), out_step=(1, 1), taps=(r, s), offset=dilation, filter=(0, s, 1))]


def gradient_parts(h, w, r, s, stride, pad, dilation):
    def line(size, taps, st, pd, dl, first):
        """Along one side: pixels first, first + st, ...: how many, taps they see, the least place, the step between taps, last tap, tap step."""
        count = ceil(size - first, st)
        seen = [t for t in range(taps) if (first + pd - t * dl) % st == 0]
        g = math.gcd(st, dl)
        if not seen:
            return count, 0, 0, 0, 0, 0
        return count, len(seen), (first + pd - seen[-1] * dl) // st, dl // g, seen[-1], -(st // g)
    parts = []
    for h0 in range(min(stride[0], h)):
        for w0 in range(min(stride[1], w)):
            ch, nh, lh, oh, th, dh = line(h, r, stride[0], pad[0], dilation[0], h0)
            cw, nw, lw, ow, tw, dw = line(w, s, stride[1], pad[1], dilation[1], w0)
            if not (nh and nw):
                nh = nw = lh = lw = 0
            parts.append(dict(height=ch, width=cw, low=(lh, lw), step=(1, 1), out=(h0, w0), out_step=stride, taps=(nh, nw), offset=(oh, ow),
                              filter=(th * s + tw, dh * s, dw)))
    return sorted(parts, key=lambda p: -p["taps"][0] * p["taps"][1])  # the longest first: the short ones fill the end


def convolve(x, packed, out, parts, config, scale=None, bias=None, relu=0, persistent=True, extra={}):
    """x [n, h, w, c] and out [n, p, q, k] dense; packed [k, taps, c]."""
    cfg, e = config, ELEMENT[x.dtype]
    n, h, w, c = x.shape
    k, taps = packed.shape[:2]
    f = function("ops/conv2d/conv2d_hopper.cu", "conv2d_hopper", dict(cfg.macros, ELEMENT=e, **extra), cfg.shared)
    filters = tiled_map(e, packed.data_ptr(), (c, taps, k), (cfg.A_CHUNK, 1, cfg.TILE_N))
    tiles_n = ceil(k, cfg.TILE_N)
    launches = []
    for at in range(0, len(parts), 4):
        some, end, body, ins, outs = parts[at:at + 4], 0, b"", [], []
        for p in some:
            end += ceil(n * p["height"] * p["width"], cfg.TILE_M)
            count = (p["height"], p["width"])
            body += struct.pack("<18i", end, *count, *p["low"], *p["step"], *p["out"], *p["out_step"], *p["taps"], *p["offset"], *p["filter"])
            ins.append(pixel_map(e, x.data_ptr(), x.shape, p["low"], count, p["step"], cfg.A_CHUNK, cfg.TILE_M))
            outs.append(pixel_map(e, out.data_ptr(), out.shape, p["out"], count, p["out_step"], cfg.out_chunk, 64))
        plan = struct.pack("<5i", len(some), tiles_n, c, k, relu) + body + bytes(72 * (4 - len(some)))
        arguments = [*(ins + ins[:1] * 3)[:4], filters, *(outs + outs[:1] * 3)[:4], address(scale), address(bias), plan]
        launches.append((grid_of(cfg, end * tiles_n, persistent), arguments))
    return lambda: [launch(f, grid, (cfg.threads,), cfg.shared, arguments) for grid, arguments in launches]


def slab_rows(pixels, part, chunk):
    """Pixels that all taps of a run of `pixels` see, in whole 1024-byte patterns of the swizzle."""
    rows = pixels + (part["taps"][0] - 1) * part["offset"][0] * part["width"] + (part["taps"][1] - 1) * part["offset"][1]
    pattern = 1024 // (2 * chunk)
    return ceil(rows, pattern) * pattern


def slab_part(x, part):
    """A part of stride 1 counted through the padded image; None where the slab does not apply."""
    h, w = x.shape[1:3]
    pad = (-part["low"][0], -part["low"][1])
    reach = [(part["taps"][i] - 1) * part["offset"][i] for i in (0, 1)]
    if part["step"] != (1, 1) or part["out_step"] != (1, 1) or any(not 0 <= pad[i] <= reach[i] for i in (0, 1)):
        return None
    return dict(part, height=h + pad[0], width=w + pad[1])


def slab_config(x, packed, part, config):
    """(part, rows, bytes of filters, shared memory) or None."""
    part = slab_part(x, part)
    if part is None:
        return None
    c, taps = x.shape[3], part["taps"][0] * part["taps"][1]
    rows = slab_rows(config.TILE_M // config.groups, part, config.A_CHUNK)
    filters = taps * ceil(c, config.A_CHUNK) * config.TILE_N * 2 * config.A_CHUNK
    rings = config.groups * config.STAGES
    shared = filters + rings * (rows * 2 * config.A_CHUNK + 16) + config.groups * config.OUT_BUFFERS * 128 * config.out_chunk + 8 * (1 + config.groups) + 8 * config.TILE_M
    return (part, rows, filters, shared) if rows <= 1024 and (shared + 1024) * config.BLOCKS_PER_SM <= 233472 else None


def convolve_slab(x, packed, out, part, config, scale=None, bias=None, relu=0, extra={}):
    cfg, e = config, ELEMENT[x.dtype]
    n, h, w, c = x.shape
    k, taps = packed.shape[:2]
    part, rows, filter_bytes, shared = slab_config(x, packed, part, cfg)
    f = function("ops/conv2d/conv2d_hopper_slab.cu", "conv2d_hopper_slab", dict(cfg.macros, ELEMENT=e, **extra), shared)
    filters = tiled_map(e, packed.data_ptr(), (c, taps, k), (cfg.A_CHUNK, 1, cfg.TILE_N))
    count = (part["height"], part["width"])
    group_rows = cfg.TILE_M // cfg.groups
    tiles, tiles_n = ceil(n * count[0] * count[1], group_rows), ceil(k, cfg.TILE_N)
    inputs = pixel_map(e, x.data_ptr(), x.shape, part["low"], count, (1, 1), cfg.A_CHUNK, rows)
    plan = struct.pack("<18i", n, *count, *out.shape[1:3], *part["low"], *part["taps"], part["offset"][0] * count[1], part["offset"][1], *part["filter"], ceil(c, cfg.A_CHUNK), k, tiles, tiles_n)
    plan += struct.pack("<IIi", filter_bytes, rows * 2 * cfg.A_CHUNK, relu)
    blocks = max(1, min(SMS * cfg.BLOCKS_PER_SM // tiles_n, ceil(tiles, cfg.groups))) * tiles_n
    return lambda: launch(f, (blocks,), (cfg.threads,), shared, [inputs, filters, out.data_ptr(), address(scale), address(bias), plan])


def weight_gradient(x, gy, weights, stride, pad, dilation, config, slab=False, extra={}):
    """weights [k, c, r, s] of f32 or 16 bits receive the gradient."""
    cfg, e = config, ELEMENT[x.dtype]
    n, h, w, c = x.shape
    _, p, q, k = gy.shape
    r, s = weights.shape[2:]
    macros = dict(cfg.macros, ELEMENT=e, A_ROWS=1, B_ROWS=1, OUTPUT=0, SLAB=int(slab), OUT_ELEMENT=ELEMENT[weights.dtype], **extra)
    blocks, low, slab_bytes, shared = ceil(c, cfg.B_CHUNK), (-pad[0], -pad[1]), 0, cfg.shared
    if slab:
        part = slab_part(x, dict(low=low, step=stride, out_step=(1, 1), taps=(r, s), offset=dilation))
        if part is None or r * s > cfg.TILE_N // cfg.B_CHUNK:
            return None
        height, width = part["height"], part["width"]
        rows = slab_rows(cfg.DEPTH, part, cfg.B_CHUNK)
        slab_bytes, chunks, tiles_n = rows * 2 * cfg.B_CHUNK, r * s, blocks
        shared = cfg.STAGES * (cfg.TILE_M * cfg.DEPTH * 2 + slab_bytes + 16)
        if (shared + 1024) * cfg.BLOCKS_PER_SM > 233472 or rows > 1024:
            return None
        gradient = pixel_map(e, gy.data_ptr(), gy.shape, (0, 0), (height, width), (1, 1), cfg.A_CHUNK, cfg.DEPTH)
        inputs = pixel_map(e, x.data_ptr(), x.shape, low, (height, width), (1, 1), cfg.B_CHUNK, rows)
    else:
        height, width, chunks = p, q, r * s * blocks
        tiles_n = ceil(chunks * cfg.B_CHUNK, cfg.TILE_N)
        gradient = tiled_map(e, gy.data_ptr(), (k, n * p * q), (cfg.A_CHUNK, cfg.DEPTH))
        inputs = pixel_map(e, x.data_ptr(), x.shape, low, (p, q), stride, cfg.B_CHUNK, cfg.DEPTH)
    f = function("ops/conv2d/conv2d_hopper_weights.cu", "conv2d_hopper_weights", macros, shared)
    add = function("ops/conv2d/conv2d_hopper_weights.cu", "conv2d_hopper_weights_sum", macros)
    tiles_m, steps = ceil(k, cfg.TILE_M), ceil(n * height * width, cfg.DEPTH)
    shares = min(SMS * cfg.BLOCKS_PER_SM, tiles_m * tiles_n * steps)
    slots = torch.empty((shares + tiles_m * tiles_n) * cfg.TILE_M * cfg.TILE_N, device=x.device, dtype=torch.float32).fill_(float("nan"))
    skip = (cfg.DEPTH // (height * width), cfg.DEPTH // width % height, cfg.DEPTH % width)
    plan = struct.pack("<20i", height, width, *skip, *low, *stride, s, *dilation, blocks, chunks, c, tiles_m, tiles_n, steps, shares, slab_bytes)
    # Few weights of many slots: a block for every tap; else taps together, which lie next to each other in memory.
    runs = k // 8 * ceil(c, 32)
    some = min(r * s, 16) if runs >= SMS else 1
    slices = min(16, slices_for(shares, tiles_m * tiles_n))
    warps = slices * min(some, 16 // slices)
    room = 4 * 32 * 8 * (some + warps)
    go = lambda: launch(f, (shares,), (cfg.threads,), shared, [gradient, inputs, slots.data_ptr(), plan])
    total = lambda: launch(add, (runs, ceil(r * s, some)), (32, warps), room, [slots.data_ptr(), weights.data_ptr(), ("i", r * s), ("i", some), ("i", slices), plan])
    return go, total
