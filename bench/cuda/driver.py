"""The CUDA driver and NVRTC by ctypes: compiles the kernels of the crate and launches them on torch's stream."""

import ctypes as C
import glob
import os
import re
from concurrent.futures import ThreadPoolExecutor

import torch

# The folder of the emulated driver and compiler, when there is no GPU: tensors then stay in the memory of this process.
EMULATOR = os.environ.get("CUDA_EMULATOR", "")
DEVICE = "cpu" if EMULATOR else "cuda"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "crates", "neurona", "src")


def find_nvrtc():
    candidates = [EMULATOR and f"{EMULATOR}/libnvrtc.so.13", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    for folder in __import__("site").getsitepackages():
        candidates += glob.glob(f"{folder}/nvidia/*/lib/libnvrtc.so.1[23]")
    candidates += glob.glob("/usr/local/cuda*/lib64/libnvrtc.so")
    for name in filter(None, candidates):
        try:
            return C.CDLL(name)
        except OSError:
            pass
    raise SystemExit("NVRTC was not found")


class Kernels:
    """Compiled kernels by (file, macros), with registers and spills."""

    def __init__(self, arch="sm_90a", start=True):
        self.nvrtc, self.arch = find_nvrtc(), arch
        self.images, self.modules, self.resources = {}, {}, {}
        self.driver = C.CDLL(f"{EMULATOR}/libcuda.so.1" if EMULATOR else "libcuda.so.1") if start else None
        if start and DEVICE == "cuda":
            torch.zeros(1, device=DEVICE)
        elif start:
            context = C.c_void_p()
            check(self.driver.cuInit(0), "start")
            check(self.driver.cuDevicePrimaryCtxRetain(C.byref(context), 0), "start")
            check(self.driver.cuCtxSetCurrent(context), "start")
        paths = glob.glob(f"{ROOT}/cuda/include/*.cuh")
        self.includes = [(os.path.basename(p).encode(), open(p, "rb").read()) for p in paths]

    def compile(self, key):
        if key in self.images:
            return
        file, macros = key
        source = open(f"{ROOT}/ops/{file}", "rb").read()
        count = len(self.includes)
        names = (C.c_char_p * count)(*[name for name, _ in self.includes])
        texts = (C.c_char_p * count)(*[text for _, text in self.includes])
        program, size = C.c_void_p(), C.c_size_t()
        self.nvrtc.nvrtcCreateProgram(C.byref(program), source, os.path.basename(file).encode(), count, texts, names)
        options = [f"--gpu-architecture={self.arch}", "--std=c++17", "--ptxas-options=-v"]
        options += [f"-D{name}={value}" for name, value in macros]
        array = (C.c_char_p * len(options))(*[o.encode() for o in options])
        code = self.nvrtc.nvrtcCompileProgram(program, len(options), array)
        self.nvrtc.nvrtcGetProgramLogSize(program, C.byref(size))
        log = C.create_string_buffer(size.value)
        self.nvrtc.nvrtcGetProgramLog(program, log)
        if code != 0:
            raise RuntimeError(f"{key}: {log.value.decode()[:2000]}")
        self.nvrtc.nvrtcGetCUBINSize(program, C.byref(size))
        image = C.create_string_buffer(size.value)
        self.nvrtc.nvrtcGetCUBIN(program, image)
        pattern = r"function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers"
        self.resources[key] = re.findall(pattern, log.value.decode(), re.S)
        self.images[key] = image.raw

    def compile_all(self, keys):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.compile, set(keys)))

    def launch(self, key, name, blocks, threads, arguments, shared=0):
        driver = self.driver
        if key not in self.modules:
            self.compile(key)
            module = C.c_void_p()
            check(driver.cuModuleLoadData(C.byref(module), self.images[key]), f"load {key}")
            self.modules[key] = module, {}
        module, functions = self.modules[key]
        if name not in functions:
            function = C.c_void_p()
            check(driver.cuModuleGetFunction(C.byref(function), module, name.encode()), f"find {name}")
            if shared > 48 << 10:
                check(driver.cuFuncSetAttribute(function, 8, shared), f"shared memory of {name}")
            functions[name] = function
        values = [argument(a) for a in arguments]
        pointers = (C.c_void_p * len(values))(*[C.cast(C.pointer(v), C.c_void_p) for v in values])
        bx, by, bz = (list(blocks) + [1, 1])[:3]
        stream = C.c_void_p(torch.cuda.current_stream().cuda_stream if DEVICE == "cuda" else 0)
        code = driver.cuLaunchKernel(functions[name], bx, by, bz, threads, 1, 1, shared, stream, pointers, None)
        check(code, f"launch {name} {key} {blocks} {threads}")
        if DEVICE == "cpu":
            check(driver.cuCtxSynchronize(), f"run {name} {key} {blocks} {threads}")


def argument(value):
    """A kernel argument: a tensor's address, None, an int (32 bits), ("i64", int), or bytes of a struct."""
    if value is None:
        return C.c_void_p(0)
    if isinstance(value, int):
        return C.c_int(value)
    if isinstance(value, tuple):
        return C.c_longlong(value[1])
    if isinstance(value, bytes):
        return (C.c_char * len(value))(*value)
    return C.c_void_p(value.data_ptr())


def check(code, what):
    if code != 0:
        raise RuntimeError(f"CUDA error {code}: {what}")
