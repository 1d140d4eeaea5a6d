// While kernels run, an access to an inaccessible page is reported with the kernel, the thread and the source line.
#pragma once
#include <csignal>

namespace emulator {

class FaultReports {
  public:
    FaultReports();
    ~FaultReports();
    FaultReports(const FaultReports &) = delete;

  private:
    static constexpr int signals[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction before[4];
    stack_t stack_before;
};

}  // namespace emulator
