// Checks the emulator itself: results, errors that calls give back, and faults that must end the process with the right message.
#include "self_test_kernels.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

typedef unsigned long long Address;
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(Address *, size_t);
int cuMemFree_v2(Address);
int cuMemcpyHtoD_v2(Address, const void *, size_t);
int cuMemcpyDtoH_v2(void *, Address, size_t);
int cuMemAllocHost_v2(void **, size_t);
int cuMemcpyHtoDAsync_v2(Address, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, Address, size_t, void *);
int cuMemsetD8Async(Address, unsigned char, size_t, void *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuFuncSetAttribute(void *, int, int);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned);
int cuEventRecord(void *, void *);
int cuEventSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuStreamGetCaptureInfo_v3(void *, int *, unsigned long long *, void **, void *const **, const void **, size_t *);
int cuStreamUpdateCaptureDependencies_v2(void *, void **, const void *, size_t, unsigned);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
int nvrtcCreateProgram(void **, const char *, const char *, int, const char *const *, const char *const *);
int nvrtcCompileProgram(void *, int, const char *const *);
int nvrtcGetProgramLogSize(void *, size_t *);
int nvrtcGetProgramLog(void *, char *);
int nvrtcGetCUBINSize(void *, size_t *);
int nvrtcGetCUBIN(void *, char *);
}

namespace {

int failures = 0;
void *module_handle, *stream;

void check(bool good, const std::string &what) {
    if (good) return;
    ++failures;
    printf("FAILED: %s\n", what.c_str());
}
void expect(int got, int wanted, const std::string &what) {
    check(got == wanted, what + " gave " + std::to_string(got) + ", not " + std::to_string(wanted));
}

std::vector<char> compile() {
    void *program;
    const char *names[] = {"ptx.cuh"}, *contents[] = {"#error replaced by the emulator\n"};
    const char *options[] = {"--gpu-architecture=sm_80", "-DSCALE=3", "--std=c++17"};
    expect(nvrtcCreateProgram(&program, kernel_source, "self_test.cu", 1, contents, names), 0, "nvrtcCreateProgram");
    int result = nvrtcCompileProgram(program, 3, options);
    size_t bytes;
    nvrtcGetProgramLogSize(program, &bytes);
    std::vector<char> log(bytes);
    nvrtcGetProgramLog(program, log.data());
    expect(result, 0, std::string("nvrtcCompileProgram") + log.data());
    nvrtcGetCUBINSize(program, &bytes);
    std::vector<char> image(bytes);
    nvrtcGetCUBIN(program, image.data());
    return image;
}

template <class T> Address upload(const std::vector<T> &values) {
    Address address = 0;
    expect(cuMemAlloc_v2(&address, values.size() * sizeof(T)), 0, "cuMemAlloc");
    cuMemcpyHtoD_v2(address, values.data(), values.size() * sizeof(T));
    return address;
}
template <class T> std::vector<T> download(Address address, size_t count) {
    expect(cuStreamSynchronize(stream), 0, "cuStreamSynchronize");
    std::vector<T> values(count);
    expect(cuMemcpyDtoH_v2(values.data(), address, count * sizeof(T)), 0, "cuMemcpyDtoH");
    return values;
}

void *function(const char *name) {
    void *handle = nullptr;
    expect(cuModuleGetFunction(&handle, module_handle, name), 0, std::string("cuModuleGetFunction ") + name);
    return handle;
}
template <class... Arguments> int launch(const char *name, unsigned blocks, unsigned threads, unsigned shared, Arguments... arguments) {
    void *addresses[] = {&arguments..., nullptr};
    return cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, shared, stream, addresses, nullptr);
}

// Runs something that must end the process, in a child, and looks for the message.
void expect_fault(const std::string &message, const std::function<void()> &work) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], 2);
        work();
        cuStreamSynchronize(stream);
        _exit(0);
    }
    close(pipe_ends[1]);
    std::string output;
    char part[512];
    for (ssize_t got; (got = read(pipe_ends[0], part, sizeof part)) > 0;) output.append(part, (size_t)got);
    close(pipe_ends[0]);
    int status;
    waitpid(child, &status, 0);
    check(WIFSIGNALED(status) && output.find(message) != std::string::npos, "a fault with '" + message + "' but got: " + output);
}

void results() {
    const int n = 1 << 20;
    std::vector<float> x(n);
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i] = (float)(i % 13);
    Address input = upload(x), output = upload(std::vector<float>(8));
    expect(launch("block_sum", 8, 256, 0, input, output, (long long)n), 0, "block_sum");
    double got = 0;
    for (float part : download<float>(output, 8)) got += part;
    check(got == sum, "the sum over blocks");

    expect(launch("scale", n / 256, 256, 0, input, (long long)n), 0, "scale");
    x = download<float>(input, n);
    for (int i = 0; i < n; ++i)
        if (x[i] != (float)(i % 13 * 3)) return check(false, "scale");

    Address words = upload(std::vector<int>(32 * 8));
    expect(launch("warp", 1, 32, 0, words), 0, "warp");
    auto w = download<int>(words, 32 * 8);
    for (int lane = 0; lane < 32; ++lane) {
        const int *mine = &w[lane * 8];
        check(mine[0] == (lane ^ 5) * 10 && mine[1] == (lane >= 3 ? lane - 3 : lane) * 10, "shuffles");
        check(mine[2] == (lane + 4 < 32 ? lane + 4 : lane) * 10 && mine[3] == (lane / 8 * 8 + 2) * 10, "shuffles with width");
        check(mine[4] == (int)0x55555555 && mine[5] == 496 && mine[6] == (lane % 8 < 7 ? lane + 1 : lane), "ballot and sum");
        check(mine[7] == 7, "__syncthreads_count");
    }

    Address reversed = upload(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
    expect(launch("reverse", 1, 8, 64, reversed, 8), 0, "reverse");
    check(download<double>(reversed, 8)[0] == 8, "dynamic shared memory");

    Address bits = upload(std::vector<unsigned short>(65536));
    expect(launch("half", 256, 256, 0, bits), 0, "half");
    auto h = download<unsigned short>(bits, 65536);
    for (int i = 0; i < 65536; ++i) {
        bool not_a_number = (i & 0x7fff) > 0x7c00;
        if (not_a_number ? (h[i] & 0x7fff) <= 0x7c00 : h[i] != i) return check(false, "f16 " + std::to_string(i) + " came back as " + std::to_string(h[i]));
    }
    Address rounded = upload(std::vector<unsigned short>(6));
    expect(launch("rounding", 1, 1, 0, rounded), 0, "rounding");
    auto r = download<unsigned short>(rounded, 6);
    const unsigned short wanted[] = {0x3c00, 0x3c02, 0x7c00, 0x7bff, 0x0001, 0x3f80};
    for (int i = 0; i < 6; ++i) expect(r[i], wanted[i], "rounding " + std::to_string(i));

    Address product = upload(std::vector<float>(16 * 8));
    expect(launch("matrices", 1, 32, 0, product), 0, "matrices");
    auto m = download<float>(product, 16 * 8);
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
            float total = 100;
            for (int k = 0; k < 16; ++k) total += (float)(row + 2 * k) * (float)(k - 3 * column);
            if (m[row * 8 + column] != total) return check(false, "the product of matrices");
        }
}

void graphs() {
    Address x = upload(std::vector<double>{1, 2, 3, 4});
    expect(cuStreamBeginCapture_v2(stream, 1), 0, "cuStreamBeginCapture");
    expect(launch("reverse", 1, 4, 32, x, 4), 0, "launch in a capture");
    void *graph, *ready;
    expect(cuStreamEndCapture(stream, &graph), 0, "cuStreamEndCapture");
    check(download<double>(x, 4)[0] == 1, "capture runs nothing");
    expect(cuGraphInstantiateWithFlags(&ready, graph, 0), 0, "cuGraphInstantiate");
    for (int replay = 1; replay <= 3; ++replay) {
        expect(cuGraphLaunch(ready, stream), 0, "cuGraphLaunch");
        expect(cuStreamSynchronize(stream), 0, "cuStreamSynchronize");
        check(download<double>(x, 4)[0] == (replay % 2 ? 4 : 1), "replay");
    }

    cuStreamBeginCapture_v2(stream, 1);
    expect(cuStreamSynchronize(stream), 900, "synchronizing a capturing stream");
    expect(cuStreamEndCapture(stream, &graph), 901, "the end of a broken capture");
    cuStreamBeginCapture_v2(stream, 0);
    double value;
    expect(cuMemcpyDtoH_v2(&value, x, 8), 900, "a synchronous copy during capture");
    cuStreamEndCapture(stream, &graph);

    void *other, *event, *old;
    cuStreamCreate(&other, 1);
    cuEventCreate(&event, 2);
    cuEventCreate(&old, 2);
    cuEventRecord(old, other);
    cuStreamBeginCapture_v2(stream, 2);
    expect(cuStreamWaitEvent(stream, old, 0), 905, "waiting for work outside the capture");
    cuStreamEndCapture(stream, &graph);
    cuStreamBeginCapture_v2(stream, 2);
    cuEventRecord(event, stream);
    cuStreamWaitEvent(other, event, 0);
    expect(cuMemsetD8Async(x, 0, 8, other), 0, "a fill on a forked stream");
    expect(cuStreamEndCapture(stream, &graph), 904, "the end of a capture with a stream not joined");
    cuStreamBeginCapture_v2(stream, 2);
    cuEventRecord(event, stream);
    cuStreamWaitEvent(other, event, 0);
    cuMemsetD8Async(x, 0, 8, other);
    cuEventRecord(event, other);
    cuStreamWaitEvent(stream, event, 0);
    expect(cuStreamEndCapture(stream, &graph), 0, "the end of a capture with two streams");

    // Two fills of the same bytes: with an edge the second one stays, without it the one captured last may run first.
    for (bool waits : {true, false}) {
        cuStreamBeginCapture_v2(stream, 2);
        cuMemsetD8Async(x, 1, 8, stream);
        int status;
        void *const *nodes;
        size_t count;
        expect(cuStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, &nodes, nullptr, &count), 0, "cuStreamGetCaptureInfo");
        check(count == 1, "a fill is one node");
        std::vector<void *> first(nodes, nodes + count);
        expect(cuStreamUpdateCaptureDependencies_v2(stream, first.data(), nullptr, waits, 1), 0, "cuStreamUpdateCaptureDependencies");
        cuMemsetD8Async(x, 2, 8, stream);
        expect(cuStreamEndCapture(stream, &graph), 0, "the end of a capture with a branch");
        expect(cuGraphInstantiateWithFlags(&ready, graph, 0), 0, "cuGraphInstantiate");
        cuGraphLaunch(ready, stream);
        cuStreamSynchronize(stream);
        check(download<unsigned char>(x, 1)[0] == (waits ? 2 : 1), "a replay keeps to the edges and to nothing else");
    }
}

// Two streams: with the wait the data arrives in time; without it, late streams must show that it may not.
void order(bool late) {
    void *other, *event, *host;
    cuStreamCreate(&other, 1);
    cuEventCreate(&event, 2);
    cuMemAllocHost_v2(&host, 32);
    auto values = (double *)host;
    for (bool waits : {true, false}) {
        Address x = upload(std::vector<double>{0, 0, 0, 0}), y = upload(std::vector<double>{5, 5, 5, 5});
        for (int i = 0; i < 4; ++i) values[i] = i + 1;
        expect(cuMemcpyHtoDAsync_v2(x, host, 32, other), 0, "an upload");
        cuEventRecord(event, other);
        if (waits) expect(cuStreamWaitEvent(stream, event, 0), 0, "cuStreamWaitEvent");
        launch("reverse", 1, 4, 32, x, 4);
        expect(cuStreamSynchronize(stream), 0, "cuStreamSynchronize");
        double first = download<double>(x, 1)[0];
        check(first == (waits || !late ? 4 : 0), "the order of streams");
        expect(cuEventSynchronize(event), 0, "cuEventSynchronize");

        values[0] = 0;
        cuMemcpyDtoHAsync_v2(host, y, 8, other);
        check(values[0] == (late ? 0 : 5), "a download into pinned memory before its stream is waited for");
        cuStreamSynchronize(other);
        check(values[0] == 5, "a download");
    }
}

void refusals() {
    Address x = upload(std::vector<double>(8)), big;
    expect(cuMemAlloc_v2(&big, (size_t)1 << 40), 2, "allocating too much");
    expect(cuMemFree_v2(x + 8), 1, "freeing what was not allocated");
    double values[16];
    expect(cuMemcpyDtoH_v2(values, x, 128), 1, "copying past an allocation");
    expect(launch("reverse", 0, 8, 64, x, 8), 1, "no blocks");
    expect(launch("reverse", 1, 1025, 64, x, 8), 1, "too many threads");
    expect(launch("block_sum", 1, 512, 0, x, x, 1ll), 1, "more threads than __launch_bounds__");
    expect(launch("reverse", 1, 8, 50000, x, 8), 1, "too much dynamic shared memory");
    expect(cuFuncSetAttribute(function("reverse"), 8, 60000), 0, "raising dynamic shared memory");
    expect(launch("reverse", 1, 8, 50000, x, 8), 0, "raised dynamic shared memory");
    expect(cuFuncSetAttribute(function("reverse"), 8, 1 << 20), 1, "raising dynamic shared memory too far");
    void *none;
    expect(cuModuleGetFunction(&none, module_handle, "none"), 500, "an unknown kernel");
    expect(cuModuleLoadData(&none, "not an image"), 200, "an image of something else");
}

void faults() {
    Address x = upload(std::vector<double>(8)), freed = upload(std::vector<double>(8));
    cuMemFree_v2(freed);
    expect_fault("__syncthreads (16 of 32 came)", [&] { launch("half_at_barrier", 1, 32, 0); });
    expect_fault("returned from the kernel: threads 16-31", [&] { launch("half_at_barrier", 1, 32, 0); });
    expect_fault("__shfl_xor_sync with mask 0xffffffff: threads 0-15", [&] { launch("half_in_shuffle", 1, 32, 0); });
    expect_fault("bytes past the end of an allocation of 64 bytes", [&] { launch("write", 1, 1, 0, x, 8); });
    expect_fault("self_test.cu:", [&] { launch("write", 1, 1, 0, x, 40); });
    expect_fault("that was freed", [&] { launch("write", 1, 1, 0, freed, 0); });
    expect_fault("dynamic shared memory", [&] { launch("reverse", 1, 8, 32, x, 8); });
    expect_fault("byte 4096 of dynamic shared memory", [&] { launch("reverse", 1, 1, 64, x, 513); });
    expect_fault("misaligned", [&] { launch("write", 1, 1, 0, x + 4, 0); });
    expect_fault("index past the end of an array", [&] { launch("index", 1, 1, 0, x, 33); });
    expect_fault("stack of the thread is full", [&] { launch("deep", 1, 1, 0, x, 1 << 20); });
    expect_fault("the mask leaves out the thread", [&] { launch("wrong_mask", 1, 32, 0); });
}

}  // namespace

int main() {
    void *context;
    expect(cuInit(0), 0, "cuInit");
    expect(cuDevicePrimaryCtxRetain(&context, 0), 0, "cuDevicePrimaryCtxRetain");
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, 1);
    std::vector<char> image = compile();
    if (failures) return 1;
    expect(cuModuleLoadData(&module_handle, image.data()), 0, "cuModuleLoadData");
    results();
    graphs();
    const char *when = getenv("NEURONA_EMULATED_STREAMS");
    order(when && !strcmp(when, "late"));
    refusals();
    faults();
    if (!failures) printf("all checks passed%s\n", when ? ", streams late" : "");
    return failures != 0;
}
