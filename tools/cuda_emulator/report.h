// Errors in kernels end the process with an account of where: on a GPU they would poison the context or pass unseen.
#pragma once
#include <string>

namespace emulator {
[[noreturn]] void fail(const std::string &message);
}
