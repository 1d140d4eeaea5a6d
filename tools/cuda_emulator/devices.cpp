// Initialisation, the one device, its contexts, errors and look-up of functions.
#include "driver.h"
#include "memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace emulator {

std::recursive_mutex driver_lock;

namespace {
bool ready = false;
CUctx_st primary = {0, 0};
unsigned primary_users = 0;
thread_local std::vector<CUcontext> contexts;

int capability() {
    static const int number = [] {
        const char *given = getenv("NEURONA_EMULATED_CAPABILITY");
        return given ? atoi(given) : 80;
    }();
    return number;
}
}  // namespace

bool initialized() { return ready; }
CUcontext current_context() { return contexts.empty() ? nullptr : contexts.back(); }

int device_attribute(int attribute) {
    // Shared memory differs between the generations: 100 KB, 164 KB or 228 KB on a multiprocessor, 1 KB of a block's reserved.
    int per_multiprocessor = capability() >= 90 ? 228 : capability() == 80 || capability() == 87 ? 164 : 100;
    switch (attribute) {
        case 1: case 2: case 3: return 1024;
        case 4: return 64;
        case 5: return 2147483647;
        case 6: case 7: return 65535;
        case attribute_shared_per_block: return 48 << 10;
        case 9: return 64 << 10;
        case 10: return 32;
        case 11: return 2147483647;
        case 12: case 82: return 65536;
        case 13: return 1410000;
        case 14: return 512;
        case 15: case 19: case 31: case 41: case 78: case 95: case 115: return 1;
        case attribute_multiprocessors: return 4;
        case 36: return 1215000;
        case 37: return 5120;
        case 38: return 40 << 20;
        case attribute_threads_per_multiprocessor: return 2048;
        case 40: return 2;
        case 75: return capability() / 10;
        case 76: return capability() % 10;
        case attribute_shared_per_multiprocessor: return per_multiprocessor << 10;
        case attribute_shared_opt_in: return (per_multiprocessor - 1) << 10;
        case 106: return 32;
        case 111: return 1 << 10;
        default: return 0;
    }
}

}  // namespace emulator

using namespace emulator;

EXPORT CUresult cuInit(unsigned flags) {
    LOCK;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    ready = true;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) { return *version = 13000, CUDA_SUCCESS; }

EXPORT CUresult cuDeviceGetCount(int *count) {
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    return *count = 1, CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
    return *device = 0, CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Emulated GPU");
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    return *value = device_attribute(attribute), CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    return *bytes = memory::total(), CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid, "emulated-gpu-000", 16);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid(char *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    LOCK;
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    ++primary_users;
    return *context = &primary, CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    LOCK;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (primary_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    finish_all();
    --primary_users;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    LOCK;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    primary.flags = flags;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = primary.flags, *active = primary_users > 0;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *context = new CUctx_st{device, flags};
    contexts.push_back(*context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    if (!context || context == &primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (current_context() == context) contexts.pop_back();
    delete context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    if (!contexts.empty()) contexts.pop_back();
    if (context) contexts.push_back(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    return *context = current_context(), CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    contexts.push_back(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    NEED_CONTEXT;
    return *device = 0, CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize() {
    NEED_CONTEXT;
    if (CUresult error = forbid_during_capture()) return error;
    finish_all();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetFlags(unsigned flags) {
    NEED_CONTEXT;
    current_context()->flags = flags;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
    NEED_CONTEXT;
    return *flags = current_context()->flags, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetLimit(int, size_t) {
    NEED_CONTEXT;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetLimit(size_t *value, int) {
    NEED_CONTEXT;
    return *value = 1024, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCacheConfig(int) {
    NEED_CONTEXT;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCacheConfig(int *preference) {
    NEED_CONTEXT;
    return *preference = 0, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    NEED_CONTEXT;
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuProfilerStart() { return CUDA_SUCCESS; }
EXPORT CUresult cuProfilerStop() { return CUDA_SUCCESS; }

namespace {
struct ErrorText {
    CUresult code;
    const char *name, *text;
};
#define ERROR(name, text) {name, #name, text}
const ErrorText error_texts[] = {
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef ERROR
const ErrorText *text_of(CUresult code) {
    for (auto &entry : error_texts)
        if (entry.code == code) return &entry;
    return nullptr;
}
}  // namespace

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    auto entry = text_of(code);
    *name = entry ? entry->name : nullptr;
    return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
    auto entry = text_of(code);
    *text = entry ? entry->text : nullptr;
    return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **address, int, uint64_t, int *status) {
    Dl_info self;
    dladdr((void *)cuInit, &self);
    void *library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *address = nullptr;
    for (const char *version : {"_v2", ""})
        if (library && !*address) *address = dlsym(library, (std::string(symbol) + version).c_str());
    if (library) dlclose(library);
    if (status) *status = *address ? 0 : 1;
    return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuGetProcAddress(const char *symbol, void **address, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, address, version, flags, nullptr);
}
