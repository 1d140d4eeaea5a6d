// Streams, events, capture and graphs. Work runs as early as it can (within the call that submits it) or, when asked by the
// environment, as late as it may (when something waits for it): a program that is right under both orders its streams well. A
// capturing stream records work instead, and what the driver refuses during capture is refused here.
#include "driver.h"
#include "memory.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>

using namespace emulator;

namespace {

enum Mode { global = 0, thread_local_mode = 1, relaxed = 2 };

// How far each stream of a capture has come, by the number of its operations.
typedef std::map<CUstream, unsigned> Progress;

struct Capture {
    unsigned long long id;
    Mode mode;
    std::thread::id thread;
    CUstream origin;
    bool valid;
    CUgraph graph;
    std::map<CUstream, Progress> streams;
    // For each stream what its next operation must wait for.
    std::map<CUstream, std::vector<CUgraphNode>> ends;
};
std::vector<std::shared_ptr<Capture>> captures;
unsigned long long next_capture = 1;
thread_local int thread_mode = global;

constexpr unsigned non_blocking = 1;
constexpr unsigned disable_timing = 2;

// What an event stands for: a place in a stream, passed when everything before it has run.
struct Mark {
    CUstream stream;
    bool passed;
    std::chrono::steady_clock::time_point time;
};

}  // namespace

struct CUstream_st {
    unsigned flags;
    int priority;
    std::shared_ptr<Capture> capture;
    std::deque<std::function<void()>> pending;
};

struct CUevent_st {
    unsigned flags;
    std::shared_ptr<Mark> mark;
    std::shared_ptr<Capture> capture;
    Progress progress;
    std::vector<CUgraphNode> ends;
};

namespace {

// The handles 1 and 2 name the legacy default stream and the default stream of a thread; null is the former.
bool is_default(CUstream stream) { return (uintptr_t)stream <= 2; }
std::vector<CUstream> streams;
std::vector<CUevent> events;
bool known(CUstream stream) { return is_default(stream) || std::find(streams.begin(), streams.end(), stream) != streams.end(); }
bool known(CUevent event) { return std::find(events.begin(), events.end(), event) != events.end(); }

bool as_late_as_possible() {
    static const bool late = [] {
        const char *when = getenv("NEURONA_EMULATED_STREAMS");
        return when && strcmp(when, "late") == 0;
    }();
    return late;
}

void run_next(CUstream stream) {
    auto work = std::move(stream->pending.front());
    stream->pending.pop_front();
    work();
}
void run_all(CUstream stream) {
    while (!stream->pending.empty()) run_next(stream);
}
// Streams that the legacy default stream waits for.
void run_blocking_streams() {
    for (CUstream stream : std::vector<CUstream>(streams))
        if (!(stream->flags & non_blocking)) run_all(stream);
}
void run_until_passed(const Mark &mark) {
    while (!mark.passed) run_next(mark.stream);
}
void add(CUstream stream, std::function<void()> work) {
    if (is_default(stream)) {
        run_blocking_streams();
        work();
        return;
    }
    stream->pending.push_back(std::move(work));
    if (!as_late_as_possible()) run_all(stream);
}

Capture *capture_of(CUstream stream) { return is_default(stream) ? nullptr : stream->capture.get(); }

bool legacy_stream_would_join() {
    for (auto &capture : captures)
        for (auto &[stream, progress] : capture->streams)
            if (!(stream->flags & non_blocking)) return true;
    return false;
}

void end(const std::shared_ptr<Capture> &capture) {
    for (auto &[stream, progress] : capture->streams) stream->capture = nullptr;
    captures.erase(std::find(captures.begin(), captures.end(), capture));
}

}  // namespace

namespace emulator {

bool is_capturing(CUstream stream) { return capture_of(stream) != nullptr; }

CUresult submit(CUstream stream, NodeKind kind, std::function<void()> work) {
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    Capture *capture = capture_of(stream);
    if (!capture) {
        if (is_default(stream) && legacy_stream_would_join()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        add(stream, std::move(work));
        return CUDA_SUCCESS;
    }
    if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    auto &ends = capture->ends[stream];
    capture->graph->nodes.push_back(std::make_shared<CUgraphNode_st>(CUgraphNode_st{kind, std::move(work), ends}));
    ends = {capture->graph->nodes.back().get()};
    ++capture->streams[stream][stream];
    return CUDA_SUCCESS;
}

void finish_all() {
    for (CUstream stream : std::vector<CUstream>(streams)) run_all(stream);
    memory::check();
}
void finish(CUstream stream) {
    if (is_default(stream))
        run_blocking_streams();
    else
        run_all(stream);
}

CUresult forbid_during_capture() {
    if (thread_mode == relaxed) return CUDA_SUCCESS;
    for (auto &capture : captures) {
        bool own = capture->thread == std::this_thread::get_id();
        bool forbidden = own ? capture->mode != relaxed : capture->mode == global && thread_mode == global;
        if (!forbidden) continue;
        capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

}  // namespace emulator

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    NEED_CONTEXT;
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    *stream = new CUstream_st{flags, priority, nullptr, {}};
    streams.push_back(*stream);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    NEED_CONTEXT;
    auto found = std::find(streams.begin(), streams.end(), stream);
    if (found == streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
        delete stream->capture->graph;
        end(std::shared_ptr<Capture>(stream->capture));
    }
    run_all(stream);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return CUDA_SUCCESS;
}

namespace {
CUresult may_wait_for(CUstream stream) {
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (Capture *capture = capture_of(stream)) {
        capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (is_default(stream) && legacy_stream_would_join()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return forbid_during_capture();
}
}  // namespace

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    NEED_CONTEXT;
    if (CUresult error = may_wait_for(stream)) return error;
    finish(stream);
    memory::check();
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamQuery(CUstream stream) {
    NEED_CONTEXT;
    if (CUresult error = may_wait_for(stream)) return error;
    if (is_default(stream) || stream->pending.empty()) return CUDA_SUCCESS;
    // A program that asks again and again sees progress.
    run_next(stream);
    return CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    NEED_CONTEXT;
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return *flags = is_default(stream) ? 0 : stream->flags, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    NEED_CONTEXT;
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return *priority = is_default(stream) ? 0 : stream->priority, CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data) {
    NEED_CONTEXT;
    return submit(stream, NodeKind::host, [=] { function(data); });
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    NEED_CONTEXT;
    *event = new CUevent_st{flags, nullptr, nullptr, {}, {}};
    events.push_back(*event);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    NEED_CONTEXT;
    auto found = std::find(events.begin(), events.end(), event);
    if (found == events.end()) return CUDA_ERROR_INVALID_HANDLE;
    events.erase(found);
    delete event;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    NEED_CONTEXT;
    if (!known(event) || !known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (Capture *capture = capture_of(stream)) {
        if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        event->capture = stream->capture;
        event->progress = capture->streams[stream];
        event->ends = capture->ends[stream];
        return CUDA_SUCCESS;
    }
    if (is_default(stream) && legacy_stream_would_join()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    event->capture = nullptr;
    auto mark = std::make_shared<Mark>(Mark{stream, false, {}});
    event->mark = mark;
    add(stream, [mark] {
        mark->passed = true;
        mark->time = std::chrono::steady_clock::now();
    });
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }

namespace {
CUresult may_wait_for(CUevent event) {
    if (!known(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (!event->capture) return forbid_during_capture();
    event->capture->valid = false;
    return CUDA_ERROR_CAPTURED_EVENT;
}
}  // namespace

EXPORT CUresult cuEventQuery(CUevent event) {
    NEED_CONTEXT;
    if (CUresult error = may_wait_for(event)) return error;
    if (!event->mark || event->mark->passed) return CUDA_SUCCESS;
    run_next(event->mark->stream);
    return CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuEventSynchronize(CUevent event) {
    NEED_CONTEXT;
    if (CUresult error = may_wait_for(event)) return error;
    if (event->mark) run_until_passed(*event->mark);
    memory::check();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    NEED_CONTEXT;
    if (!known(start) || !known(end) || (start->flags | end->flags) & disable_timing) return CUDA_ERROR_INVALID_HANDLE;
    if (!start->mark || !end->mark) return CUDA_ERROR_INVALID_HANDLE;
    if (!start->mark->passed || !end->mark->passed) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(end->mark->time - start->mark->time).count();
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

namespace {
void join(std::vector<CUgraphNode> &nodes, const std::vector<CUgraphNode> &others) {
    for (CUgraphNode other : others)
        if (std::find(nodes.begin(), nodes.end(), other) == nodes.end()) nodes.push_back(other);
}
}  // namespace

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    NEED_CONTEXT;
    if (!known(stream) || !known(event)) return CUDA_ERROR_INVALID_HANDLE;
    Capture *capture = capture_of(stream);
    if (!event->capture) {
        if (!capture) {
            if (auto mark = event->mark) add(stream, [mark] { run_until_passed(*mark); });
            return CUDA_SUCCESS;
        }
        capture->valid = false;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (is_default(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (std::find(captures.begin(), captures.end(), event->capture) == captures.end()) return CUDA_ERROR_CAPTURED_EVENT;
    if (capture && capture != event->capture.get()) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (!event->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    // Waiting for an event of a capture takes the stream into that capture.
    stream->capture = event->capture;
    for (auto &[other, count] : event->progress) {
        unsigned &reached = stream->capture->streams[stream][other];
        reached = std::max(reached, count);
    }
    join(stream->capture->ends[stream], event->ends);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    NEED_CONTEXT;
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (mode < global || mode > relaxed) return CUDA_ERROR_INVALID_VALUE;
    if (is_default(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
    auto capture = std::make_shared<Capture>();
    *capture = {next_capture++, (Mode)mode, std::this_thread::get_id(), stream, true, new CUgraph_st, {}, {}};
    capture->streams[stream] = {};
    stream->capture = capture;
    captures.push_back(capture);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    NEED_CONTEXT;
    if (graph) *graph = nullptr;
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (!capture_of(stream)) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != relaxed && capture->thread != std::this_thread::get_id()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    for (auto &[other, progress] : capture->streams)
        if (other != stream && (capture->streams[stream].count(other) == 0 || capture->streams[stream][other] < progress[other]))
            if (!result) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    end(capture);
    if (result || !graph)
        delete capture->graph;
    else
        *graph = capture->graph;
    return result;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    NEED_CONTEXT;
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (is_default(stream) && legacy_stream_would_join()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    Capture *capture = capture_of(stream);
    return *status = !capture ? 0 : capture->valid ? 1 : 2, CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
                                          size_t *count) {
    if (CUresult error = cuStreamIsCapturing(stream, status)) return error;
    LOCK;
    Capture *capture = capture_of(stream);
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = capture ? capture->graph : nullptr;
    static const std::vector<CUgraphNode> none;
    const auto &ends = capture ? capture->ends[stream] : none;
    if (dependencies) *dependencies = ends.data();
    if (count) *count = ends.size();
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
                                          const void **edges, size_t *count) {
    if (edges) *edges = nullptr;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies, const void *edges, size_t count,
                                                     unsigned flags) {
    NEED_CONTEXT;
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    Capture *capture = capture_of(stream);
    if (!capture) return CUDA_ERROR_INVALID_VALUE;
    if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    constexpr unsigned instead = 1;
    if (flags > instead || edges || (count && !dependencies)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> asked(dependencies, dependencies + count);
    auto of_this_capture = [&](CUgraphNode node) {
        auto &nodes = capture->graph->nodes;
        return std::any_of(nodes.begin(), nodes.end(), [&](auto &other) { return other.get() == node; });
    };
    if (!std::all_of(asked.begin(), asked.end(), of_this_capture)) return CUDA_ERROR_INVALID_VALUE;
    auto &ends = capture->ends[stream];
    if (flags == instead) ends.clear();
    join(ends, asked);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    if (*mode < global || *mode > relaxed) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    NEED_CONTEXT;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    return *graph = new CUgraph_st, CUDA_SUCCESS;
}

namespace {
// Of the nodes that may run the one captured last goes first: an order as far from the captured one as the edges allow, so
// that a missing edge shows in the results.
std::vector<std::shared_ptr<CUgraphNode_st>> latest_first(const std::vector<std::shared_ptr<CUgraphNode_st>> &nodes) {
    std::map<CUgraphNode, size_t> place;
    for (size_t i = 0; i < nodes.size(); ++i) place[nodes[i].get()] = i;
    std::vector<size_t> waits(nodes.size());
    std::vector<std::vector<size_t>> next(nodes.size());
    std::set<size_t> ready;
    for (size_t i = 0; i < nodes.size(); ++i) {
        waits[i] = nodes[i]->after.size();
        for (CUgraphNode before : nodes[i]->after) next[place.at(before)].push_back(i);
        if (!waits[i]) ready.insert(i);
    }
    std::vector<std::shared_ptr<CUgraphNode_st>> order;
    while (!ready.empty()) {
        size_t last = *ready.rbegin();
        ready.erase(last);
        order.push_back(nodes[last]);
        for (size_t i : next[last])
            if (!--waits[i]) ready.insert(i);
    }
    return order;
}
}  // namespace

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long) {
    NEED_CONTEXT;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    return *executable = new CUgraphExec_st{latest_first(graph->nodes)}, CUDA_SUCCESS;
}
EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *, char *, size_t) {
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    NEED_CONTEXT;
    return executable && known(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    NEED_CONTEXT;
    if (!executable) return CUDA_ERROR_INVALID_VALUE;
    auto nodes = executable->nodes;
    return submit(stream, NodeKind::empty, [nodes] {
        for (auto &node : nodes) node->run();
    });
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    NEED_CONTEXT;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    delete graph;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) {
    NEED_CONTEXT;
    if (!executable) return CUDA_ERROR_INVALID_VALUE;
    delete executable;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    NEED_CONTEXT;
    if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
    if (nodes)
        for (size_t i = 0; i < *count; ++i) nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
    *count = nodes ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, unsigned *type) {
    NEED_CONTEXT;
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    return *type = (unsigned)node->kind, CUDA_SUCCESS;
}
