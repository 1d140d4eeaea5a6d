// Memory, copies and fills.
#include "driver.h"
#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

using namespace emulator;

namespace {

void *pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }
bool valid(CUdeviceptr address, size_t bytes) { return memory::contains(pointer(address), bytes); }

std::map<void *, size_t> pinned;

bool is_pinned(const void *address, size_t bytes) {
    auto after = pinned.upper_bound((void *)address);
    if (after == pinned.begin()) return false;
    auto &[start, size] = *std::prev(after);
    return (uintptr_t)address + bytes <= (uintptr_t)start + size;
}

CUresult copy(void *to, const void *from, size_t bytes, CUstream stream) {
    return submit(stream, NodeKind::copy, [=] { memmove(to, from, bytes); });
}

// A copy that returns when it is done.
CUresult copy_now(void *to, const void *from, size_t bytes) {
    if (CUresult error = forbid_during_capture()) return error;
    if (CUresult error = copy(to, from, bytes, nullptr)) return error;
    finish(nullptr);
    return CUDA_SUCCESS;
}

// Memory that is not pinned goes through the driver's own: it is read before the call returns, and written before it too.
CUresult copy_from_host(void *to, const void *from, size_t bytes, CUstream stream) {
    if (is_capturing(stream) || is_pinned(from, bytes)) return copy(to, from, bytes, stream);
    auto start = (const char *)from;
    auto staged = std::make_shared<std::vector<char>>(start, start + bytes);
    return submit(stream, NodeKind::copy, [=] { memcpy(to, staged->data(), bytes); });
}
CUresult copy_to_host(void *to, const void *from, size_t bytes, CUstream stream) {
    CUresult result = copy(to, from, bytes, stream);
    if (!result && !is_capturing(stream) && !is_pinned(to, bytes)) finish(stream);
    return result;
}

template <class T> CUresult fill(CUdeviceptr address, T value, size_t count, CUstream stream) {
    if (count == 0) return CUDA_SUCCESS;
    if (address % sizeof(T) || !valid(address, count * sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    auto at = (T *)pointer(address);
    return submit(stream, NodeKind::fill, [=] {
        for (size_t i = 0; i < count; ++i) at[i] = value;
    });
}

template <class T> CUresult fill_now(CUdeviceptr address, T value, size_t count) {
    if (CUresult error = forbid_during_capture()) return error;
    return fill(address, value, count, nullptr);
}

}  // namespace

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    NEED_CONTEXT;
    *available = memory::available(), *total = memory::total();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = forbid_during_capture()) return error;
    *address = (CUdeviceptr)(uintptr_t)memory::allocate(bytes);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    NEED_CONTEXT;
    if (address == 0) return CUDA_SUCCESS;
    if (CUresult error = forbid_during_capture()) return error;
    finish_all();
    return memory::release(pointer(address)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Memory allocated during capture belongs to the graph: the address is the same at each replay.
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    void *start = memory::allocate(bytes);
    if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (CUdeviceptr)(uintptr_t)start;
    return is_capturing(stream) ? submit(stream, NodeKind::allocation, [] {}) : CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    NEED_CONTEXT;
    if (!valid(address, 1)) return CUDA_ERROR_INVALID_VALUE;
    bool captured = is_capturing(stream);
    return submit(stream, NodeKind::release, [=] {
        if (!captured) memory::release(pointer(address));
    });
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address) {
    NEED_CONTEXT;
    void *found;
    size_t size;
    if (!memory::find(pointer(address), &found, &size)) return CUDA_ERROR_NOT_FOUND;
    if (start) *start = (CUdeviceptr)(uintptr_t)found;
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = forbid_during_capture()) return error;
    if (posix_memalign(address, page_size, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    pinned[*address] = bytes;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAllocHost_v2(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

EXPORT CUresult cuMemFreeHost(void *address) {
    NEED_CONTEXT;
    if (CUresult error = forbid_during_capture()) return error;
    finish_all();
    if (!pinned.erase(address)) return CUDA_ERROR_INVALID_VALUE;
    free(address);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned) {
    return *device = (CUdeviceptr)(uintptr_t)host, CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostRegister_v2(void *, size_t, unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemHostUnregister(void *) { return CUDA_SUCCESS; }

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_SUCCESS;
    return valid(to, bytes) ? copy_now(pointer(to), from, bytes) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_SUCCESS;
    return valid(from, bytes) ? copy_now(to, pointer(from), bytes) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_SUCCESS;
    return valid(to, bytes) && valid(from, bytes) ? copy_now(pointer(to), pointer(from), bytes) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_SUCCESS;
    return valid(to, bytes) ? copy_from_host(pointer(to), from, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_SUCCESS;
    return valid(from, bytes) ? copy_to_host(to, pointer(from), bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEED_CONTEXT;
    if (bytes == 0) return CUDA_SUCCESS;
    return valid(to, bytes) && valid(from, bytes) ? copy(pointer(to), pointer(from), bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEED_CONTEXT;
    return bytes ? copy(pointer(to), pointer(from), bytes, stream) : CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    NEED_CONTEXT;
    return bytes ? copy_now(pointer(to), pointer(from), bytes) : CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
    NEED_CONTEXT;
    return fill_now(address, value, count);
}
EXPORT CUresult cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
    NEED_CONTEXT;
    return fill_now(address, value, count);
}
EXPORT CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count) {
    NEED_CONTEXT;
    return fill_now(address, value, count);
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    NEED_CONTEXT;
    return fill(address, value, count, stream);
}
EXPORT CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    NEED_CONTEXT;
    return fill(address, value, count, stream);
}
EXPORT CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    NEED_CONTEXT;
    return fill(address, value, count, stream);
}
