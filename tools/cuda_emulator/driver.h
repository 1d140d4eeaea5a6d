// The driver's types and what its files share.
#pragma once
#include "executor.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

enum CUresult : int {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct emulator::LoadedModule *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

struct CUctx_st {
    CUdevice device;
    unsigned flags;
};

struct CUfunc_st {
    CUmodule module;
    const emulator::Kernel *kernel;
    unsigned dynamic_shared_limit;
};

// The numbers are those of CUgraphNodeType.
enum class NodeKind : unsigned { kernel = 0, copy = 1, fill = 2, host = 3, empty = 5, allocation = 10, release = 11 };

struct CUgraphNode_st {
    NodeKind kind;
    std::function<void()> run;
    // The nodes of the same graph that must have run before.
    std::vector<CUgraphNode> after;
};

struct CUgraph_st {
    std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
    std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace emulator {

// One call at a time: work runs within calls.
extern std::recursive_mutex driver_lock;
#define LOCK std::lock_guard<std::recursive_mutex> lock(emulator::driver_lock)

bool initialized();
CUcontext current_context();
#define NEED_CONTEXT                                                      \
    LOCK;                                                                 \
    if (!emulator::initialized()) return CUDA_ERROR_NOT_INITIALIZED;      \
    if (!emulator::current_context()) return CUDA_ERROR_INVALID_CONTEXT

int device_attribute(int attribute);
constexpr int attribute_shared_per_block = 8, attribute_multiprocessors = 16, attribute_threads_per_multiprocessor = 39,
              attribute_shared_per_multiprocessor = 81, attribute_shared_opt_in = 97;

// Adds work to a stream, or records it when the stream is capturing.
CUresult submit(CUstream stream, NodeKind kind, std::function<void()> work);
bool is_capturing(CUstream stream);
// Runs what was submitted: to a stream, or to all.
void finish(CUstream stream);
void finish_all();
// What a call that waits, or that must not happen during capture, answers; success when it may go on.
CUresult forbid_during_capture();

}  // namespace emulator
