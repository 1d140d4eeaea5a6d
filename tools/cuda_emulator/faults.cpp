#include "faults.h"

#include "executor.h"
#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

namespace emulator {
namespace {

// Kernel stacks may be what overflowed, so the report runs on a stack of its own.
alignas(16) char report_stack[256 << 10];

uintptr_t instruction(void *context) {
#if defined(__x86_64__)
    return (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#else
    return 0;
#endif
}

// Asks binutils for the source line; empty when it cannot say.
std::string source_line(uintptr_t at) {
    Dl_info module;
    if (!at || !dladdr((void *)at, &module) || !module.dli_fname) return "";
    std::string file = module.dli_fname, self = "/proc/self/";
    if (file.compare(0, self.size(), self) == 0) file = "/proc/" + std::to_string(getpid()) + "/" + file.substr(self.size());
    char command[512];
    snprintf(command, sizeof command, "addr2line -i -e %s 0x%zx 2>/dev/null", file.c_str(), at - (uintptr_t)module.dli_fbase);
    FILE *output = popen(command, "r");
    if (!output) return "";
    std::string lines;
    char line[512];
    while (fgets(line, sizeof line, output)) {
        std::string text(line);
        text = text.substr(0, text.find_first_of("\n ("));
        if (text.compare(0, 2, "??") != 0) lines += (lines.empty() ? "" : ", called from ") + text;
    }
    pclose(output);
    return lines.empty() ? "" : "\n  at " + lines;
}

void report_fault(int signal, siginfo_t *information, void *context) {
    std::string where = source_line(instruction(context));
    if (signal == SIGFPE) fail("an integer division by zero, or one whose result does not fit" + where);
    if (signal == SIGILL) fail("an instruction that traps" + where);
    char address[32];
    snprintf(address, sizeof address, "%p", information->si_addr);
    fail("an access to inaccessible memory at " + std::string(address) + ": " + describe_address(information->si_addr) + where);
}

}  // namespace

FaultReports::FaultReports() {
    stack_t stack = {};
    stack.ss_sp = report_stack;
    stack.ss_size = sizeof report_stack;
    sigaltstack(&stack, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
    for (int i = 0; i < 4; ++i) sigaction(signals[i], &action, &before[i]);
}

FaultReports::~FaultReports() {
    for (int i = 0; i < 4; ++i) sigaction(signals[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
}

[[noreturn]] void fail(const std::string &message) {
    std::string position = running_position();
    fflush(stdout);
    fprintf(stderr, "\ncuda emulator: %s\n", message.c_str());
    if (!position.empty()) fprintf(stderr, "  %s\n", position.c_str());
    fflush(stderr);
    abort();
}

}  // namespace emulator
