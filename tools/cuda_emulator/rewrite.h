// Turns preprocessed CUDA C++ into C++ for the CPU.
#pragma once
#include <string>

namespace emulator {
// Replaces __global__, __launch_bounds__ and __shared__, and writes the table of kernels behind the source.
std::string rewrite(const std::string &source, const std::string &stamp);
}
