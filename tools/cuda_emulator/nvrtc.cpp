// The emulated NVRTC: compiles CUDA C++ to a shared object with the C++ compiler of this machine. That object is the "cubin".
#include "rewrite.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

enum nvrtcResult : int {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    NVRTC_ERROR_INTERNAL_ERROR = 11,
};

namespace {

typedef std::vector<std::pair<std::string, std::string>> Files;

// The headers that stand in front of every kernel, from the files of this folder.
#define EMBED(name, file)                                                                                     \
    extern "C" const char name[], name##_end[];                                                               \
    asm(".section .rodata\n.global " #name "\n.hidden " #name "\n.global " #name "_end\n.hidden " #name "_end\n" #name \
        ":\n.incbin \"" file "\"\n" #name "_end:\n.byte 0\n.previous\n");
EMBED(emulator_interface, "interface.h")
EMBED(emulator_device, "device.h")
EMBED(emulator_device_types, "device_types.h")
EMBED(emulator_device_math, "device_math.h")
EMBED(emulator_device_warp, "device_warp.h")
EMBED(emulator_device_checks, "device_checks.h")
EMBED(emulator_device_kernels, "device_kernels.h")
EMBED(emulator_ptx, "ptx.h")

std::string text(const char *start, const char *end) { return std::string(start, end); }
#define TEXT(name) text(name, name##_end)

Files own_headers() {
    return {{"interface.h", TEXT(emulator_interface)},
            {"device.h", TEXT(emulator_device)},
            {"device_types.h", TEXT(emulator_device_types)},
            {"device_math.h", TEXT(emulator_device_math)},
            {"device_warp.h", TEXT(emulator_device_warp)},
            {"device_checks.h", TEXT(emulator_device_checks)},
            {"device_kernels.h", TEXT(emulator_device_kernels)}};
}

std::string base_name(const std::string &path) { return path.substr(path.rfind('/') + 1); }

std::string environment(const char *name, const std::string &otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

std::string compiler() { return environment("NEURONA_EMULATOR_CXX", "g++"); }

std::string cache_folder() {
    std::string user = environment("XDG_CACHE_HOME", environment("HOME", "/tmp") + "/.cache");
    return environment("NEURONA_EMULATOR_CACHE", user + "/neurona-cuda-emulator");
}

void make_folders(const std::string &path) {
    for (size_t slash = 1; (slash = path.find('/', slash)) != std::string::npos; ++slash) mkdir(path.substr(0, slash).c_str(), 0777);
    mkdir(path.c_str(), 0777);
}

bool write_file(const std::string &path, const std::string &content) {
    make_folders(path.substr(0, path.rfind('/')));
    std::ofstream file(path, std::ios::binary);
    file << content;
    return (bool)file.flush();
}

std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

void remove_folder(const std::string &path) {
    if (DIR *folder = opendir(path.c_str())) {
        while (dirent *entry = readdir(folder)) {
            std::string name = entry->d_name;
            if (name == "." || name == "..") continue;
            if (unlink((path + "/" + name).c_str()) != 0) remove_folder(path + "/" + name);
        }
        closedir(folder);
    }
    rmdir(path.c_str());
}

// Runs a command in a folder, its output into the file `log` there. In that folder file names are short, so messages are too.
bool run(const std::string &folder, const std::vector<std::string> &command) {
    std::vector<char *> arguments;
    for (auto &word : command) arguments.push_back((char *)word.c_str());
    arguments.push_back(nullptr);
    std::string log = folder + "/log";
    pid_t child = fork();
    if (child == 0) {
        int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
        if (file < 0 || chdir(folder.c_str()) != 0) _exit(126);
        dup2(file, 1), dup2(file, 2);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) write_file(log, "cannot run " + command[0] + "\n");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// FNV-1a twice with different seeds: 128 bits.
std::string fingerprint(const std::vector<std::string> &parts) {
    uint64_t hash[2] = {0xcbf29ce484222325ull, 0x9ae16a3b2f90404full};
    for (auto &part : parts)
        for (size_t i = 0; i <= part.size(); ++i)
            for (auto &h : hash) h = (h ^ (unsigned char)(i < part.size() ? part[i] : 0)) * 0x100000001b3ull, h ^= h >> 29;
    char name[40];
    snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)hash[0], (unsigned long long)hash[1]);
    return name;
}

}  // namespace

struct _nvrtcProgram {
    std::string source, name;
    Files headers;
    std::string log, object;
};
typedef _nvrtcProgram *nvrtcProgram;

namespace {

// -D, -U and the architecture are all that matters here.
std::vector<std::string> definitions(int count, const char *const *options) {
    std::vector<std::string> result;
    std::string architecture = "80";
    for (int i = 0; i < count; ++i) {
        std::string option = options[i];
        auto value_of = [&](const std::string &long_name, const std::string &short_name) -> std::string {
            for (auto &prefix : {long_name + "=", short_name + "="})
                if (option.compare(0, prefix.size(), prefix) == 0) return option.substr(prefix.size());
            return (option == long_name || option == short_name) && i + 1 < count ? options[++i] : "";
        };
        std::string value;
        if (!(value = value_of("--define-macro", "-D")).empty())
            result.push_back("-D" + value);
        else if (!(value = value_of("--gpu-architecture", "-arch")).empty())
            architecture = value;
        else if (option.compare(0, 2, "-D") == 0 || option.compare(0, 2, "-U") == 0)
            result.push_back(option);
    }
    std::string number;
    for (char c : architecture)
        if (c >= '0' && c <= '9') number += c;
    result.push_back("-D__CUDA_ARCH__=" + number + "0");
    return result;
}

bool compile(_nvrtcProgram &program, const std::vector<std::string> &defined) {
    std::vector<std::string> preprocess = {compiler(), "-E", "-x", "c++", "-std=c++17", "-I", "kernel", "-include", "emulator/device.h"};
    preprocess.insert(preprocess.end(), defined.begin(), defined.end());
    // The GPU's compiler fuses multiplications and additions, so this one does. Kernels look at bits through pointers of other types.
    std::vector<std::string> build = {compiler(), "-std=c++17", "-O1", "-g1", "-shared", "-fPIC", "-w", "-march=native", "-ffp-contract=fast",
                                      "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-fno-gnu-unique",
                                      "-fwrapv", "-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"};

    std::vector<std::string> parts = {program.name, program.source, TEXT(emulator_ptx), EMULATOR_STAMP};
    for (auto &[name, content] : program.headers) parts.push_back(name), parts.push_back(content);
    parts.insert(parts.end(), preprocess.begin(), preprocess.end());
    parts.insert(parts.end(), build.begin(), build.end());
    std::string cached = cache_folder() + "/" + fingerprint(parts) + ".so";
    program.object = read_file(cached);
    if (!program.object.empty()) return true;

    make_folders(cache_folder());
    std::string folder = cache_folder() + "/work-XXXXXX";
    if (!mkdtemp(&folder[0])) {
        program.log = "cannot write to " + cache_folder() + "\n";
        return false;
    }
    for (auto &[name, content] : own_headers()) write_file(folder + "/emulator/" + name, content);
    for (auto &[name, content] : program.headers) {
        bool replaced = base_name(name).compare(0, 3, "ptx") == 0;
        write_file(folder + "/kernel/" + name, replaced ? TEXT(emulator_ptx) : content);
    }
    write_file(folder + "/" + program.name, program.source);
    build.push_back("-fdebug-prefix-map=" + folder + "=.");
    preprocess.insert(preprocess.end(), {program.name, "-o", "preprocessed"});
    build.insert(build.end(), {"-o", "kernels.so", "-x", "c++-cpp-output", "rewritten"});
    bool done = run(folder, preprocess) &&
                write_file(folder + "/rewritten", emulator::rewrite(read_file(folder + "/preprocessed"), EMULATOR_STAMP)) && run(folder, build);
    program.log = read_file(folder + "/log");
    if (done) {
        program.object = read_file(folder + "/kernels.so");
        // Another process may have been faster: the contents are the same.
        rename((folder + "/kernels.so").c_str(), cached.c_str());
    }
    if (getenv("NEURONA_EMULATOR_KEEP"))
        program.log += "kept " + folder + "\n";
    else
        remove_folder(folder);
    return done;
}

// Keeps a program as it was given, so that a GPU's compiler can try it too: name and options in the first line.
void record(const _nvrtcProgram &program, int count, const char *const *options) {
    std::string folder = environment("NEURONA_EMULATOR_PROGRAMS", "");
    if (folder.empty()) return;
    std::string content = "// " + program.name;
    for (int i = 0; i < count; ++i) content += std::string(" ") + options[i];
    content += "\n" + program.source;
    write_file(folder + "/" + fingerprint({content}) + ".cu", content);
}

nvrtcResult give(const std::string &content, char *to) {
    memcpy(to, content.data(), content.size());
    return NVRTC_SUCCESS;
}

const int architectures[] = {75, 80, 86, 87, 89, 90, 100, 120};

}  // namespace

EXPORT nvrtcResult nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, NVRTC_SUCCESS; }

EXPORT const char *nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
        case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
        case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
        case NVRTC_ERROR_PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
        case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
        case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
    return *count = sizeof architectures / sizeof architectures[0], NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetSupportedArchs(int *supported) {
    memcpy(supported, architectures, sizeof architectures);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int headers, const char *const *contents,
                                      const char *const *names) {
    if (!program || !source || headers < 0) return NVRTC_ERROR_INVALID_INPUT;
    auto created = new _nvrtcProgram{source, name && *name ? base_name(name) : "default_program", {}, "", ""};
    for (int i = 0; i < headers; ++i) created->headers.push_back({names[i], contents[i]});
    return *program = created, NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
    delete *program;
    return *program = nullptr, NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options) {
    if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
    record(*program, count, options);
    return compile(*program, definitions(count, options)) ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
    if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
    return *bytes = program->log.size() + 1, NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
    if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
    if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
    return *bytes = program->object.size(), NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *object) {
    return program ? give(program->object, object) : NVRTC_ERROR_INVALID_PROGRAM;
}
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes) { return nvrtcGetCUBINSize(program, bytes); }
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *object) { return nvrtcGetCUBIN(program, object); }
