"""Compiles Neurona's Hopper kernels with NVRTC, encodes tensor maps and launches, through ctypes on the CUDA driver."""
import ctypes as C, glob, hashlib, os, struct, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("NEURONA_SOURCE", os.path.join(HERE, "../../crates/neurona/src"))
CACHE = os.environ.get("NEURONA_CUBINS", os.path.join(tempfile.gettempdir(), "neurona-cubins"))


def nvrtc():
    names = [os.environ["NVRTC"]] if "NVRTC" in os.environ else ["libnvrtc.so.13", "libnvrtc.so.12"]
    for name in names + glob.glob("/usr/local/cuda*/lib64/libnvrtc.so.1[23]"):
        try:
            return C.CDLL(name)
        except OSError:
            pass
    try:
        import nvidia  # the wheels that torch brings
        for root in nvidia.__path__:
            for name in glob.glob(root + "/**/libnvrtc.so.1[23]", recursive=True):
                return C.CDLL(name)
    except ImportError:
        pass
    raise SystemExit("no NVRTC found")


def build(file, defines):
    """The cubin of a kernel file, from the cache or freshly compiled."""
    headers = [f"{SOURCE}/cuda/include/{name}.cuh" for name in ("prelude", "ptx", "ptx_hopper", "hopper")]
    text = open(os.path.join(SOURCE, file), "rb").read()
    bodies = [open(h, "rb").read() for h in headers]
    options = ["--gpu-architecture=sm_90a", "--std=c++17", "-default-device", "--ptxas-options=-v"]
    options += [f"-D{k}={v}" for k, v in sorted(defines.items())]
    key = hashlib.sha256(text + b"".join(bodies) + " ".join(options).encode()).hexdigest()[:24]
    path = os.path.join(CACHE, key + ".cubin")
    if os.path.exists(path):
        return open(path, "rb").read()
    lib, program = nvrtc(), C.c_void_p()
    n = len(headers)
    lib.nvrtcCreateProgram(C.byref(program), text, os.path.basename(file).encode(), n, (C.c_char_p * n)(*bodies),
                           (C.c_char_p * n)(*[os.path.basename(h).encode() for h in headers]))
    failed = lib.nvrtcCompileProgram(program, len(options), (C.c_char_p * len(options))(*[o.encode() for o in options]))
    size = C.c_size_t()
    lib.nvrtcGetProgramLogSize(program, C.byref(size))
    log = C.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    log = log.value.decode()
    if failed:
        raise RuntimeError(f"{file} {defines}\n{log}")
    for line in log.splitlines():
        if "spill" in line and " 0 bytes spill stores" not in line or "warning" in line or "erialized" in line:
            print("!", file, defines, line.strip(), flush=True)
    lib.nvrtcGetCUBINSize(program, C.byref(size))
    cubin = C.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    os.makedirs(CACHE, exist_ok=True)
    with open(f"{path}.{os.getpid()}", "wb") as f:
        f.write(cubin.raw)
    os.rename(f"{path}.{os.getpid()}", path)
    return cubin.raw


_cuda = None


def cuda():
    global _cuda
    if _cuda is None:
        _cuda = C.CDLL("libcuda.so.1")
    return _cuda


def check(code, what):
    if code:
        text = C.c_char_p()
        cuda().cuGetErrorString(code, C.byref(text))
        raise RuntimeError(f"{what}: {code} {text.value.decode() if text.value else ''}")


_functions = {}


def function(file, name, defines, shared=0):
    key = (file, name, tuple(sorted(defines.items())))
    if key not in _functions:
        module, f = C.c_void_p(), C.c_void_p()
        check(cuda().cuModuleLoadData(C.byref(module), build(file, defines)), f"load {key}")
        check(cuda().cuModuleGetFunction(C.byref(f), module, name.encode()), name)
        _functions[key] = [f, 48 * 1024]
    if shared > _functions[key][1]:
        check(cuda().cuFuncSetAttribute(_functions[key][0], 8, shared), f"shared {shared}")
        _functions[key][1] = shared
    return _functions[key][0]


def launch(f, grid, block, shared, arguments):
    import torch
    values = []
    for a in arguments:
        if isinstance(a, bytes):
            values.append(a)
        elif isinstance(a, int):
            values.append(struct.pack("<q", a))
        else:  # ("i", 5)
            values.append(struct.pack("<" + a[0], a[1]))
    keep = [C.create_string_buffer(v, len(v)) for v in values]
    pointers = (C.c_void_p * len(keep))(*[C.cast(k, C.c_void_p) for k in keep])
    grid, block = tuple(grid) + (1,) * (3 - len(grid)), tuple(block) + (1,) * (3 - len(block))
    check(cuda().cuLaunchKernel(f, *grid, *block, shared, C.c_void_p(torch.cuda.current_stream().cuda_stream), pointers, None), "launch")


ELEMENT = {"f16": 6, "bf16": 9}  # CU_TENSOR_MAP_DATA_TYPE_
SWIZZLE = {64: 3, 32: 2, 16: 1}  # values of 16 bits per row -> CU_TENSOR_MAP_SWIZZLE_


def _aligned():
    raw = C.create_string_buffer(128 + 64)
    return raw, (C.addressof(raw) + 63) // 64 * 64


def tiled_map(element, address, sizes, box):
    """Sizes and box innermost first; rows dense. The innermost box size picks the swizzle."""
    raw, at = _aligned()
    rank = len(sizes)
    strides, step = [], 2
    for s in sizes[:-1]:
        step *= s
        strides.append(step)
    check(cuda().cuTensorMapEncodeTiled(C.c_void_p(at), ELEMENT[element], rank, C.c_void_p(address), (C.c_uint64 * rank)(*sizes),
          (C.c_uint64 * max(1, rank - 1))(*strides), (C.c_uint32 * rank)(*box), (C.c_uint32 * rank)(*[1] * rank), 0, SWIZZLE[box[0]], 2, 0),
          f"tiled map {sizes} {box}")
    return C.string_at(at, 128)


def pixel_map(element, address, sizes, low, count, step, channels, pixels):
    """An im2col map of NHWC memory. sizes (n, h, w, c); low, count, step (h, w): the first base pixel, how many, how far apart."""
    raw, at = _aligned()
    n, h, w, c = sizes
    high = [low[i] + (count[i] - 1) * step[i] + 1 - (h, w)[i] for i in (0, 1)]
    check(cuda().cuTensorMapEncodeIm2col(C.c_void_p(at), ELEMENT[element], 4, C.c_void_p(address), (C.c_uint64 * 4)(c, w, h, n),
          (C.c_uint64 * 3)(2 * c, 2 * c * w, 2 * c * w * h), (C.c_int * 2)(low[1], low[0]), (C.c_int * 2)(high[1], high[0]), channels, pixels,
          (C.c_uint32 * 4)(1, step[1], step[0], 1), 0, SWIZZLE[channels], 2, 0), f"pixel map {sizes} {low} {high} {step} {channels} {pixels}")
    return C.string_at(at, 128)
