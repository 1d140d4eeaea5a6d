#!/usr/bin/env python3
"""How a matrix product and a convolution become fast, step by step: ladder.py [--check] [--neurona PROGRAM] [--json FILE] [--only NAMES]

Runs every rung of bench/cuda/ladder on one product (4096³) and two convolutions, in f32 and bf16, checks it against
float64, and prints time, TFLOP/s and the share of what the GPU could do. Needs the driver, NVRTC and numpy; PyTorch,
where it is installed, gives the vendor's figures.

--check    small and odd sizes only, every element compared; no times
--neurona  the command `neurona`, whose `bench --against` gives the figures of the kernels that ship
--json     writes every row as a JSON line
--only     names of works, of types or of rungs, separated by commas
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "ladder"))
from device import CudaError, Gpu  # noqa: E402

INCLUDES = [os.path.join(HERE, "ladder"), os.path.join(HERE, "../../crates/neurona/src/cuda/include")]
# What an H200 can do at most: its ordinary arithmetic units in f32, its tensor cores in bf16 (NVIDIA's data sheet).
LIMITS = {"f32": 66.9e12, "bf16": 989e12}
# The relative error of rounding once more than float64 does: f32 sums, or results of 8 bits.
TOLERANCES = {"f32": 1e-5, "bf16": 4e-3}
ELEMENTS = {"f32": "float", "bf16": "bf16"}
# What `neurona bench` calls them.
TYPE_NAMES = {"float32": "f32", "bfloat16": "bf16"}


def ceil(a, b):
    return -(-a // b)


class Rung:
    """`tile`: rows and columns of a block, TILE where the width is chosen by the problem; `run`: elements read at once;
    `hopper`: operands come by the copy engine."""

    def __init__(self, file, tile, threads, run=1, shared=lambda n: 0, types=("f32", "bf16"), hopper=False):
        self.file, self.tile, self.threads, self.run, self.shared, self.types = file, tile, threads, run, shared, types
        self.name, self.hopper = file[:-3].replace("_", " "), hopper

    def takes(self, gpu, work, dtype):
        if dtype not in self.types:
            return False
        # The engine copies 64 channels of one place of the filter, and products are 64 columns wide.
        whole = work.along() % (64 if isinstance(work, Convolution) else 8) == 0 and work.n % 8 == 0 and width_of(work) >= 64
        return not self.hopper or gpu.capability == (9, 0) and whole


TILE = None
RUNGS = [
    Rung("1_naive.cu", (32, 8), lambda n: 256),
    Rung("2_coalesced.cu", (8, 32), lambda n: 256),
    Rung("3_shared.cu", (32, 32), lambda n: 1024),
    Rung("4_registers.cu", (128, TILE), lambda n: 2 * n),
    Rung("5_vectors.cu", (128, TILE), lambda n: 2 * n, 4),
    Rung("6_double_buffer.cu", (128, TILE), lambda n: 2 * n, 4),
    Rung("7_tensor_cores.cu", (128, TILE), lambda n: 64 * max(n // 32, 1), 8, types=("bf16",)),
    Rung("8_pipeline.cu", (128, TILE), lambda n: 64 * max(n // 32, 1), 8, lambda n: 4 * 2 * (128 * 40 + 32 * (n + 8)), ("bf16",)),
    Rung("9_hopper.cu", (128, TILE), lambda n: 288, 8, lambda n: 3 * (2 * 64 * (128 + n) + 16), ("bf16",), hopper=True),
]


class Product:
    """C = A B."""

    def __init__(self, name, m, n, k):
        self.name, self.m, self.n, self.k = name, m, n, k
        self.left_shape, self.right_shape = (m, k), (k, n)

    def macros(self):
        return []

    def along(self):
        return self.k

    def rows(self, left, chosen):
        return left[chosen]


class Convolution:
    """Images [count, size, size, channels], filters [filter, filter, channels, wanted]."""

    def __init__(self, name, count, channels, size, wanted, filter, stride, padding):
        self.name, self.channels, self.size, self.filter, self.stride, self.padding = name, channels, size, filter, stride, padding
        self.out = (size + 2 * padding - filter) // stride + 1
        self.m, self.n, self.k = count * self.out**2, wanted, filter * filter * channels
        self.left_shape, self.right_shape = (count, size, size, channels), (self.k, wanted)

    def macros(self):
        names = ["CONVOLUTION", "CHANNELS", "SIZE", "FILTER", "STRIDE", "PADDING"]
        return list(zip(names, [1, self.channels, self.size, self.filter, self.stride, self.padding]))

    def along(self):
        return self.channels

    def rows(self, images, chosen):
        """What the filters see at these output pixels, from images with their padding written out."""
        p, f = self.padding, self.filter
        padded = numpy.pad(images, ((0, 0), (p, p), (p, p), (0, 0)))
        image, y, x = chosen // self.out**2, chosen // self.out % self.out * self.stride, chosen % self.out * self.stride
        taps = [padded[image, y + r, x + s] for r in range(f) for s in range(f)]
        return numpy.concatenate(taps, axis=1)


WORKS = [
    Product("square_4096", 4096, 4096, 4096),
    Convolution("r18_64", 512, 64, 32, 64, 3, 1, 1),
    Convolution("lab_conv2", 128, 6, 14, 16, 5, 1, 0),
]
CHECKS = [
    Product("whole tiles", 256, 128, 64),
    Product("odd sizes", 131, 70, 45),
    Product("one result", 1, 1, 1),
    Product("eights", 40, 24, 72),
    Convolution("padding", 2, 8, 7, 16, 3, 1, 1),
    Convolution("stride", 3, 5, 9, 10, 3, 2, 1),
    Product("many steps", 200, 192, 1000),
    Convolution("64 channels", 3, 64, 9, 72, 3, 2, 1),
    Convolution("lab", 2, 6, 14, 16, 5, 1, 0),
]


def to_bf16(x):
    bits = x.view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def from_bf16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


class Sizes(ctypes.Structure):
    _fields_ = [("m", ctypes.c_int), ("n", ctypes.c_int), ("k", ctypes.c_int)]


class Operands:
    """Random matrices on the GPU, and some rows of what their product must be."""

    def __init__(self, gpu, work, dtype, every_row):
        random = numpy.random.default_rng(1)
        self.gpu, self.work, self.dtype = gpu, work, dtype
        left, right = (random.standard_normal(shape, dtype=numpy.float32) for shape in (work.left_shape, work.right_shape))
        stored = [to_bf16(x) if dtype == "bf16" else x for x in (left, right)]
        self.left, self.right = (from_bf16(x) if dtype == "bf16" else x for x in stored)
        self.chosen = numpy.arange(work.m) if every_row else numpy.unique([0, work.m - 1, *random.integers(0, work.m, 256)])
        self.want = work.rows(self.left, self.chosen).astype(numpy.float64) @ self.right.astype(numpy.float64)
        self.addresses = [gpu.upload(x) for x in stored]
        self.result = numpy.empty((work.m, work.n), stored[0].dtype)
        self.addresses.append(gpu.empty(self.result.nbytes))

    def error(self):
        """Of the result that is on the GPU; not a number where an element was not written."""
        got = self.gpu.download(self.addresses[2], self.result)
        got = from_bf16(got) if self.dtype == "bf16" else got
        if not numpy.isfinite(got).all():
            return float("nan")
        return float(numpy.linalg.norm(got[self.chosen] - self.want) / numpy.linalg.norm(self.want))

    def poison(self):
        """All ones are not a number in either type."""
        self.gpu.fill(self.addresses[2], 0xFF, self.result.nbytes)

    def free(self):
        for address in self.addresses:
            self.gpu.free(address)


def width_of(work):
    """Columns of a block where the problem chooses: no more than it has, so that none are computed for nothing."""
    return min(max(1 << (work.n - 1).bit_length(), 16), 128)


def source(rung, work, dtype):
    whole = work.along() % rung.run == 0 and work.n % rung.run == 0
    macros = [("ELEMENT", ELEMENTS[dtype]), ("VECTOR", int(whole)), *work.macros()]
    macros += [("TILE_N", width_of(work))] if rung.tile[1] is TILE else []
    return os.path.join(HERE, "ladder", rung.file), macros, INCLUDES


def maps(gpu, work, left, right):
    """Both operands as the copy engine sees them: tiles of 128 rows by 64 deep, and of 64 deep by 64 columns."""
    if isinstance(work, Convolution):
        first = gpu.map_windows(left, work.left_shape, work.filter, work.stride, work.padding, 64, 128)
    else:
        first = gpu.map_boxes(left, (work.k, work.m), (64, 128))
    both = first + gpu.map_boxes(right, (work.n, work.k), (64, 64))
    return (ctypes.c_char * len(both)).from_buffer_copy(both)


def prepare(gpu, rung, operands):
    """A function that launches a rung."""
    work, width = operands.work, width_of(operands.work)
    rows, columns, shared = rung.tile[0], rung.tile[1] or width, rung.shared(width)
    function = gpu.function(gpu.image(*source(rung, work, operands.dtype)), "product", shared)
    blocks = (ceil(work.m, rows), ceil(work.n, columns))
    arguments = [*operands.addresses, Sizes(work.m, work.n, work.k)]
    if rung.hopper:
        arguments[:2] = [maps(gpu, work, *operands.addresses[:2])]
    return lambda: gpu.launch(function, blocks, (rung.threads(width),), arguments, shared)


def vendor(work, operands):
    """The vendor's library through PyTorch: seconds and error, or nothing where PyTorch is not installed."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    kind = torch.bfloat16 if operands.dtype == "bf16" else torch.float32
    left, right = (torch.from_numpy(x).to("cuda", kind) for x in (operands.left, operands.right))
    if isinstance(work, Convolution):
        images = left.permute(0, 3, 1, 2)  # channels last in memory, as the ladder's
        filters = right.reshape(work.filter, work.filter, work.channels, work.n).permute(3, 2, 0, 1)
        filters = filters.contiguous(memory_format=torch.channels_last)
        run = lambda: F.conv2d(images, filters, None, work.stride, work.padding)
        result = lambda: run().permute(0, 2, 3, 1).reshape(work.m, work.n)
    else:
        run = result = lambda: left @ right
    got = result()[torch.from_numpy(operands.chosen).cuda()].double().cpu().numpy()
    error = float(numpy.linalg.norm(got - operands.want) / numpy.linalg.norm(operands.want))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph, count, times = torch.cuda.CUDAGraph(), 20, []
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    for _ in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / count)
    return sorted(times[1:])[3], error


def shipped_figures(program, wanted):
    """{(work, type): (own seconds, vendor's or none)} by Neurona itself."""
    figures = {}
    for work in WORKS:
        if not wanted(work.name):
            continue
        command = [program, "bench", "--device", "cuda", "--against", "cudnn", "--only", work.name, "--json"]
        for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
            row = json.loads(line)
            if row.get("name") == work.name and row["kind"] in ("forward", "product") and row["dtype"] in TYPE_NAMES:
                vendor = row["vendor_ms"] and row["vendor_ms"] / 1e3
                figures[work.name, TYPE_NAMES[row["dtype"]]] = row["own_ms"] / 1e3, vendor
    return figures


def plan(gpu, works, wanted):
    """(work, type, rungs) of all that was asked for."""
    for work in works:
        for dtype in LIMITS:
            if wanted(work.name, dtype):
                yield work, dtype, [rung for rung in RUNGS if rung.takes(gpu, work, dtype) and wanted(work.name, dtype, rung.name)]


def compile_all(gpu, works, wanted):
    sources = [source(rung, work, dtype) for work, dtype, rungs in plan(gpu, works, wanted) for rung in rungs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: gpu.image(*one), sources))


def check(gpu, wanted):
    failures = 0
    for work, dtype, rungs in plan(gpu, CHECKS, wanted):
        operands = Operands(gpu, work, dtype, every_row=True)
        for rung in rungs:
            operands.poison()
            prepare(gpu, rung, operands)()
            gpu.synchronize()
            error = operands.error()
            good = error < TOLERANCES[dtype]
            failures += not good
            print(f"{work.name:<14} {dtype:<5} {rung.name:<18} {error:9.1e} {'' if good else '  WRONG'}")
        operands.free()
    return failures


def measure(gpu, wanted, shipped, write):
    failures = 0
    for work, dtype, rungs in plan(gpu, WORKS, wanted):
        limit = LIMITS[dtype]
        flops = 2.0 * work.m * work.n * work.k
        operands = Operands(gpu, work, dtype, every_row=False)
        print(f"\n{work.name} in {dtype}: {flops / 1e9:.3g} GFLOP, limit {limit / 1e12:.4g} TFLOP/s")
        print(f"  {'rung':<18} {'time':>11} {'TFLOP/s':>9} {'of limit':>9} {'faster':>8} {'error':>9}")
        before = None

        def row(name, seconds, error):
            nonlocal before, failures
            good = error is None or error < TOLERANCES[dtype]
            failures += not good
            rate, gain = flops / seconds, f"{before / seconds:7.2f}×" if before else ""
            off = "" if error is None else f"{error:9.1e}"
            print(f"  {name:<18} {seconds * 1e6:8.1f} µs {rate / 1e12:9.2f} {rate / limit:9.1%} {gain:>8} {off:>9} {'' if good else '  WRONG'}", flush=True)
            write(dict(work=work.name, dtype=dtype, rung=name, ms=seconds * 1e3, tflops=rate / 1e12, share=rate / limit, error=error, gpu=gpu.name))
            before = seconds

        for rung in rungs:
            operands.poison()
            launch = prepare(gpu, rung, operands)
            launch()
            gpu.synchronize()
            error = operands.error()
            row(rung.name, gpu.seconds(launch), error)
        own, others = shipped.get((work.name, dtype), (None, None))
        if own:
            row("shipped", own, None)
        if wanted(work.name, dtype, "vendor"):
            figures = vendor(work, operands) or (others and (others, None))
            if figures:
                row("vendor", *figures)
        operands.free()
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--neurona", metavar="PROGRAM")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", metavar="NAMES", default="")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    kinds = [{work.name for work in WORKS + CHECKS}, set(LIMITS), {rung.name for rung in RUNGS} | {"vendor"}]

    def wanted(*names):
        """Whether each name is one of those asked for of its kind, if any of that kind were."""
        return all(not kind.intersection(only) or name in only for name, kind in zip(names, kinds))

    try:
        gpu = Gpu()
    except CudaError as problem:
        sys.exit(f"ladder: {problem}")
    print(f"{gpu.name}, {gpu.architecture()}, {gpu.multiprocessors} multiprocessors")
    file = open(arguments.json, "w") if arguments.json else None

    def write(row):
        if file:
            print(json.dumps(row), file=file, flush=True)

    shipped = shipped_figures(arguments.neurona, wanted) if arguments.neurona and not arguments.check else {}
    compile_all(gpu, CHECKS if arguments.check else WORKS, wanted)
    failures = check(gpu, wanted) if arguments.check else measure(gpu, wanted, shipped, write)
    sys.exit(f"{failures} results are wrong" if failures else 0)


if __name__ == "__main__":
    main()
