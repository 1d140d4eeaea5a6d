"""The CUDA driver and NVRTC by their C interfaces: what the ladder needs of them, and nothing to install beside them."""

import ctypes
import glob
import os
import site


class CudaError(RuntimeError):
    pass


def _load(names, patterns):
    """The first library that loads: by name, or from the folders that NVIDIA's Python packages use."""
    folders = site.getsitepackages() + [site.getusersitepackages()]
    found = [path for folder in folders for pattern in patterns for path in sorted(glob.glob(os.path.join(folder, pattern)))]
    for name in names + found:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


# Numbers of the driver's interface: an element type, a pattern of shared memory, how much the cache fetches ahead.
_BF16, _PATTERN_128, _FETCH_128 = 9, 3, 2


class _TensorMap:
    """128 bytes at an address that is a multiple of 64."""

    def __init__(self):
        self.room = ctypes.create_string_buffer(192)
        self.at = -(-ctypes.addressof(self.room) // 64) * 64

    def pointer(self):
        return ctypes.c_void_p(self.at)

    def bytes(self):
        return ctypes.string_at(self.at, 128)


def _bytes(path):
    with open(path, "rb") as file:
        return file.read()


class Gpu:
    """One GPU: memory, kernels, launches and times."""

    def __init__(self, index=0):
        self.cuda = _load(["libcuda.so.1", "nvcuda.dll"], [])
        nvrtc = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
        self.nvrtc = _load(nvrtc, ["nvidia/cu13/lib/libnvrtc.so.1?", "nvidia/cuda_nvrtc/lib/libnvrtc.so.1?"])
        if self.cuda is None or self.nvrtc is None:
            raise CudaError("needs libcuda (the driver) and libnvrtc (the compiler); one of them is missing")
        self._check(self.cuda.cuInit(0), "start the driver")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self.cuda.cuDeviceGet(ctypes.byref(device), index), "find the GPU")
        self._check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "start the GPU")
        self._check(self.cuda.cuCtxSetCurrent(context), "use the GPU")
        name = ctypes.create_string_buffer(256)
        self._check(self.cuda.cuDeviceGetName(name, 256, device), "name the GPU")
        self.device, self.name, self.images = device, name.value.decode(), {}
        # The attributes' numbers of the driver's interface.
        self.capability = (self._attribute(75), self._attribute(76))
        self.multiprocessors = self._attribute(16)
        self.stream = ctypes.c_void_p()
        self._check(self.cuda.cuStreamCreate(ctypes.byref(self.stream), 1), "make a stream")

    def _attribute(self, which):
        value = ctypes.c_int()
        self._check(self.cuda.cuDeviceGetAttribute(ctypes.byref(value), which, self.device), "ask the GPU")
        return value.value

    def _check(self, code, what):
        if code == 0:
            return
        text = ctypes.c_char_p()
        self.cuda.cuGetErrorName(code, ctypes.byref(text))
        raise CudaError(f"cannot {what}: {(text.value or b'').decode() or code}")

    def architecture(self):
        # Hopper's own instructions are only there under its architecture-specific name.
        return "sm_%d%d%s" % (*self.capability, "a" if self.capability == (9, 0) else "")

    def image(self, path, macros=(), includes=()):
        """The machine code of a file of kernels; `includes` are folders of headers. Threads may compile side by side."""
        key = (path, tuple(macros))
        if key not in self.images:
            self.images[key] = self._compiled(path, macros, includes)
        return self.images[key]

    def _compiled(self, path, macros, includes):
        headers = [file for folder in includes for file in sorted(glob.glob(os.path.join(folder, "*.cuh")))]
        strings = lambda items: (ctypes.c_char_p * max(len(items), 1))(*items)
        texts = strings([_bytes(file) for file in headers])
        names = strings([os.path.basename(file).encode() for file in headers])
        program, size, name = ctypes.c_void_p(), ctypes.c_size_t(), os.path.basename(path)
        self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), _bytes(path), name.encode(), len(headers), texts, names)
        options = [f"--gpu-architecture={self.architecture()}", "--std=c++17"] + [f"-D{key}={value}" for key, value in macros]
        code = self.nvrtc.nvrtcCompileProgram(program, len(options), strings([option.encode() for option in options]))
        if code != 0:
            self.nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self.nvrtc.nvrtcGetProgramLog(program, log)
            raise CudaError(f"{name}:\n{log.value.decode()}")
        self.nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        self.nvrtc.nvrtcGetCUBIN(program, image)
        self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return image

    def function(self, image, name, shared=0):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self.cuda.cuModuleLoadData(ctypes.byref(module), image), f"load {name}")
        self._check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"find kernel {name}")
        if shared > 48 << 10:  # more than every GPU has must be asked for
            self._check(self.cuda.cuFuncSetAttribute(function, 8, shared), f"give {name} {shared} bytes of shared memory")
        return function

    def empty(self, size):
        address = ctypes.c_uint64()
        self._check(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), f"take {size} bytes")
        return address

    def free(self, address):
        self._check(self.cuda.cuMemFree_v2(address), "give memory back")

    def upload(self, array):
        address = self.empty(max(array.nbytes, 16))
        self._check(self.cuda.cuMemcpyHtoD_v2(address, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)), "upload")
        return address

    def download(self, address, array):
        self._check(self.cuda.cuMemcpyDtoH_v2(array.ctypes.data_as(ctypes.c_void_p), address, ctypes.c_size_t(array.nbytes)), "download")
        return array

    def fill(self, address, byte, size):
        self._check(self.cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(byte), ctypes.c_size_t(size)), "fill")
        # Filling is on another stream than the kernels.
        self.synchronize()

    def map_boxes(self, address, sizes, box):
        """What the copy engine must know of a matrix of 16-bit floats (sizes innermost first) to copy boxes of it."""
        at = _TensorMap()
        numbers = lambda kind, values: (kind * len(values))(*values)
        code = self.cuda.cuTensorMapEncodeTiled(
            at.pointer(), _BF16, 2, ctypes.c_void_p(address.value), numbers(ctypes.c_uint64, sizes),
            numbers(ctypes.c_uint64, [2 * sizes[0]]), numbers(ctypes.c_uint32, box), numbers(ctypes.c_uint32, [1, 1]),
            0, _PATTERN_128, _FETCH_128, 0)
        self._check(code, "describe a matrix")
        return at.bytes()

    def map_windows(self, address, shape, filter, stride, padding, channels, pixels):
        """The same of images [n, h, w, c] to copy what a place of a filter sees at a run of output pixels."""
        at, (n, h, w, c) = _TensorMap(), shape
        numbers = lambda kind, *values: (kind * len(values))(*values)
        # From the first window's corner to the last one's, counted from the image's own corners.
        out = [(size + 2 * padding - filter) // stride for size in (w, h)]
        last = [stride * count - padding - (size - 1) for count, size in zip(out, (w, h))]
        code = self.cuda.cuTensorMapEncodeIm2col(
            at.pointer(), _BF16, 4, ctypes.c_void_p(address.value), numbers(ctypes.c_uint64, c, w, h, n),
            numbers(ctypes.c_uint64, 2 * c, 2 * c * w, 2 * c * w * h), numbers(ctypes.c_int, -padding, -padding),
            numbers(ctypes.c_int, *last), channels, pixels, numbers(ctypes.c_uint32, 1, stride, stride, 1),
            0, _PATTERN_128, _FETCH_128, 0)
        self._check(code, "describe images")
        return at.bytes()

    def launch(self, function, blocks, threads, arguments, shared=0):
        """Arguments are ctypes values (c_int, c_float, addresses, structures)."""
        pointers = (ctypes.c_void_p * max(len(arguments), 1))(*[ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments])
        pad = lambda three: list(three) + [1] * (3 - len(three))
        code = self.cuda.cuLaunchKernel(function, *pad(blocks), *pad(threads), shared, self.stream, pointers, None)
        self._check(code, "launch")

    def synchronize(self):
        self._check(self.cuda.cuCtxSynchronize(), "finish a kernel")

    def seconds(self, work, repeats=7):
        """The median time of `work`, which only launches. Launches are recorded in a graph and replayed: the time that
        Python takes for a launch is longer than that of a small kernel."""
        start, end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (start, end):
            self._check(self.cuda.cuEventCreate(ctypes.byref(event), 0), "make a clock")

        def timed(run, count):
            self._check(self.cuda.cuEventRecord(start, self.stream), "start the clock")
            run()
            self._check(self.cuda.cuEventRecord(end, self.stream), "stop the clock")
            self._check(self.cuda.cuEventSynchronize(end), "finish a kernel")
            milliseconds = ctypes.c_float()
            self._check(self.cuda.cuEventElapsedTime(ctypes.byref(milliseconds), start, end), "read the clock")
            return milliseconds.value / 1e3 / count

        work()
        once = max(timed(work, 1), 1e-6)
        # Enough launches for 20 ms, where so many are quick.
        count = max(1, min(100, int(0.02 / once)))
        graph = self._record(lambda: [work() for _ in range(count)])
        replay = lambda: self._check(self.cuda.cuGraphLaunch(graph, self.stream), "replay launches")
        replay()
        times = sorted(timed(replay, count) for _ in range(repeats if once < 0.05 else 3))
        self._check(self.cuda.cuGraphExecDestroy(graph), "let go of launches")
        for event in (start, end):
            self.cuda.cuEventDestroy_v2(event)
        return times[len(times) // 2]

    def _record(self, work):
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self.cuda.cuStreamBeginCapture_v2(self.stream, 1), "record launches")
        try:
            work()
        finally:
            code = self.cuda.cuStreamEndCapture(self.stream, ctypes.byref(graph))
        self._check(code, "record launches")
        self._check(self.cuda.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_ulonglong(0)), "prepare launches")
        self._check(self.cuda.cuGraphDestroy(graph), "let go of a recording")
        return ready
