// Modules (shared objects that the emulated NVRTC made), their functions, and launches.
#include "driver.h"
#include "memory.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

using namespace emulator;

namespace {

std::vector<CUmodule> modules;
std::vector<CUfunction> functions;

// The linker puts the table of sections last, so it tells how long the image is.
size_t image_size(const void *image) {
    auto header = (const Elf64_Ehdr *)image;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_type != ET_DYN) return 0;
    return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

// __shared__ variables are the zero-initialised variables local to functions (their mangled names start with _ZZ).
void find_shared_variables(LoadedModule &module, const char *image, char *base) {
    auto header = (const Elf64_Ehdr *)image;
    auto sections = (const Elf64_Shdr *)(image + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        auto names = image + sections[sections[i].sh_link].sh_offset;
        auto symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
            const Elf64_Sym &symbol = symbols[s];
            if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= header->e_shnum) continue;
            if (sections[symbol.st_shndx].sh_type != SHT_NOBITS || strncmp(names + symbol.st_name, "_ZZ", 3) != 0) continue;
            module.shared_variables.push_back({(unsigned char *)base + symbol.st_value, symbol.st_size});
        }
    }
}

CUresult unload(LoadedModule *module) {
    if (module->handle) dlclose(module->handle);
    if (module->file >= 0) close(module->file);
    delete module;
    return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    NEED_CONTEXT;
    size_t bytes = image ? image_size(image) : 0;
    if (bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
    auto loaded = new LoadedModule;
    loaded->file = memfd_create("kernels", MFD_CLOEXEC);
    if (loaded->file < 0) return unload(loaded);
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(loaded->file, (const char *)image + done, bytes - done);
        if (wrote <= 0) return unload(loaded);
        done += (size_t)wrote;
    }
    std::string path = "/proc/self/fd/" + std::to_string(loaded->file);
    loaded->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded->handle) {
        fprintf(stderr, "cuda emulator: %s\n", dlerror());
        return unload(loaded);
    }
    loaded->module = (const Module *)dlsym(loaded->handle, "emulator_module");
    Dl_info where;
    if (!loaded->module || strcmp(loaded->module->stamp, EMULATOR_STAMP) != 0 || !dladdr((void *)loaded->module, &where))
        return unload(loaded);
    *loaded->module->runtime = &runtime_services;
    find_shared_variables(*loaded, (const char *)image, (char *)where.dli_fbase);
    modules.push_back(loaded);
    return *module = loaded, CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, int *, void **) {
    return cuModuleLoadData(module, image);
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_NOT_FOUND;
    std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (image.size() < sizeof(Elf64_Ehdr) || image_size(image.data()) > image.size()) return CUDA_ERROR_INVALID_IMAGE;
    return cuModuleLoadData(module, image.data());
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    NEED_CONTEXT;
    auto found = std::find(modules.begin(), modules.end(), module);
    if (found == modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    finish_all();
    modules.erase(found);
    for (auto function = functions.begin(); function != functions.end();) {
        if ((*function)->module != module) {
            ++function;
            continue;
        }
        delete *function;
        function = functions.erase(function);
    }
    unload(module);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    NEED_CONTEXT;
    if (std::find(modules.begin(), modules.end(), module) == modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    for (auto known : functions)
        if (known->module == module && strcmp(known->kernel->name, name) == 0) return *function = known, CUDA_SUCCESS;
    for (unsigned i = 0; i < module->module->kernel_count; ++i) {
        if (strcmp(module->module->kernels[i].name, name) != 0) continue;
        *function = new CUfunc_st{module, &module->module->kernels[i], (unsigned)device_attribute(attribute_shared_per_block)};
        functions.push_back(*function);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

namespace {
bool known(CUfunction function) { return std::find(functions.begin(), functions.end(), function) != functions.end(); }
constexpr int function_max_threads = 0, function_registers = 4, function_ptx = 5, function_binary = 6, function_dynamic_shared = 8;
}  // namespace

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    NEED_CONTEXT;
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute != function_dynamic_shared) return CUDA_SUCCESS;
    if (value < 0 || value > device_attribute(attribute_shared_opt_in)) return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_limit = (unsigned)value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    NEED_CONTEXT;
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    int capability = device_attribute(75) * 10 + device_attribute(76);
    switch (attribute) {
        case function_max_threads: *value = (int)function->kernel->max_threads; break;
        case function_registers: *value = 32; break;
        case function_ptx: case function_binary: *value = capability; break;
        case function_dynamic_shared: *value = (int)function->dynamic_shared_limit; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int) {
    NEED_CONTEXT;
    return known(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t shared, unsigned) {
    NEED_CONTEXT;
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (threads > (int)function->kernel->max_threads) return *blocks = 0, CUDA_SUCCESS;
    int by_threads = device_attribute(attribute_threads_per_multiprocessor) / ((threads + 31) / 32 * 32);
    int by_shared = (int)((size_t)device_attribute(attribute_shared_per_multiprocessor) / (shared + 1024));
    return *blocks = std::min({by_threads, by_shared, 32}), CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

namespace {

// Arguments of a launch, copied: the caller's may be gone when a graph replays it.
struct Arguments {
    std::vector<std::max_align_t> storage;
    std::vector<void *> addresses;

    Arguments(const Kernel &kernel, void *const *given) {
        constexpr size_t unit = sizeof(std::max_align_t);
        size_t units = 0;
        for (unsigned i = 0; i < kernel.arguments; ++i) units += (kernel.argument_sizes[i] + unit - 1) / unit;
        // By-value structures may ask for more alignment than any plain type has.
        storage.resize(units + kernel.arguments * (most_alignment / unit) + 1);
        auto at = (uintptr_t)storage.data();
        for (unsigned i = 0; i < kernel.arguments; ++i) {
            at = (at + most_alignment - 1) / most_alignment * most_alignment;
            memcpy((void *)at, given[i], kernel.argument_sizes[i]);
            addresses.push_back((void *)at);
            at += kernel.argument_sizes[i];
        }
    }

    static constexpr size_t most_alignment = 128;
};

CUresult launch(CUfunction function, const Grid &grid, CUstream stream, void **arguments) {
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    const Kernel &kernel = *function->kernel;
    Index blocks = grid.blocks, threads = grid.threads;
    auto wrong = [](unsigned value, int attribute) { return value == 0 || value > (unsigned)device_attribute(attribute); };
    if (wrong(threads.x, 2) || wrong(threads.y, 3) || wrong(threads.z, 4)) return CUDA_ERROR_INVALID_VALUE;
    if (wrong(blocks.x, 5) || wrong(blocks.y, 6) || wrong(blocks.z, 7)) return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)threads.x * threads.y * threads.z > kernel.max_threads) return CUDA_ERROR_INVALID_VALUE;
    if (grid.dynamic_shared > function->dynamic_shared_limit) return CUDA_ERROR_INVALID_VALUE;
    if (kernel.arguments && !arguments) return CUDA_ERROR_INVALID_VALUE;
    auto copied = std::make_shared<Arguments>(kernel, arguments);
    LoadedModule *module = function->module;
    return submit(stream, NodeKind::kernel, [=, &kernel] { execute(*module, kernel, grid, copied->addresses.data()); });
}

struct LaunchAttribute {
    unsigned id;
    char padding[4];
    unsigned value[16];
};
struct LaunchConfiguration {
    Index blocks, threads;
    unsigned dynamic_shared;
    CUstream stream;
    LaunchAttribute *attributes;
    unsigned attribute_count;
};
constexpr unsigned attribute_cluster = 4;

}  // namespace

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra) {
    NEED_CONTEXT;
    if (extra) return CUDA_ERROR_NOT_SUPPORTED;
    return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared}, stream, arguments);
}

EXPORT CUresult cuLaunchKernelEx(const LaunchConfiguration *configuration, CUfunction function, void **arguments, void **extra) {
    NEED_CONTEXT;
    if (extra) return CUDA_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < configuration->attribute_count; ++i) {
        const LaunchAttribute &attribute = configuration->attributes[i];
        // Clusters need what only a GPU has.
        if (attribute.id == attribute_cluster && attribute.value[0] * attribute.value[1] * attribute.value[2] > 1)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return launch(function, {configuration->blocks, configuration->threads, configuration->dynamic_shared}, configuration->stream, arguments);
}
