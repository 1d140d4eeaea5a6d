#include "rewrite.h"

#include <cctype>
#include <utility>
#include <vector>

namespace emulator {
namespace {

bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// The words and signs of the source; strings and characters are passed over whole.
class Scanner {
  public:
    explicit Scanner(const std::string &text) : text(text) {}

    size_t at = 0;

    // The end of the token that starts at `at`.
    size_t token_end(size_t from) const {
        if (is_word(text[from])) {
            while (from < text.size() && is_word(text[from])) ++from;
            return from;
        }
        if (text[from] == '"' || text[from] == '\'') {
            char quote = text[from++];
            while (from < text.size() && text[from] != quote) from += text[from] == '\\' ? 2 : 1;
        }
        return from + 1;
    }
    // Past white space and the preprocessor's line marks.
    size_t skip_space(size_t from) const {
        while (from < text.size()) {
            if (text[from] == '#' && (from == 0 || text[from - 1] == '\n'))
                while (from < text.size() && text[from] != '\n') ++from;
            else if (isspace((unsigned char)text[from]))
                ++from;
            else
                break;
        }
        return from;
    }
    // Past the closing bracket that belongs to the opening one at `from`.
    size_t skip_brackets(size_t from) const {
        int depth = 0;
        while (from < text.size()) {
            char c = text[from];
            from = token_end(from);
            if (c == '(' || c == '[' || c == '{') ++depth;
            if ((c == ')' || c == ']' || c == '}') && --depth == 0) break;
        }
        return from;
    }
    std::string word(size_t from) const { return text.substr(from, token_end(from) - from); }

  private:
    const std::string &text;
};

struct KernelName {
    std::string name, max_threads;
};

// From behind __global__ to the parameters: gives the name, and what stays of the declaration when __launch_bounds__ is taken out.
std::pair<KernelName, std::string> read_kernel(const std::string &text, const Scanner &scanner, size_t &at) {
    KernelName kernel = {"", "1024"};
    std::string kept;
    while (at < text.size()) {
        size_t next = scanner.skip_space(at);
        kept += text.substr(at, next - at);
        at = next;
        if (at >= text.size() || text[at] == '(' || text[at] == ';') break;
        std::string word = scanner.word(at);
        if (word == "__launch_bounds__" || word == "__attribute__") {
            size_t open = scanner.skip_space(at + word.size()), close = scanner.skip_brackets(open);
            if (word == "__launch_bounds__") {
                std::string inside = text.substr(open + 1, close - open - 2);
                int depth = 0;
                size_t comma = 0;
                for (; comma < inside.size() && !(inside[comma] == ',' && depth == 0); ++comma)
                    depth += (inside[comma] == '(') - (inside[comma] == ')');
                kernel.max_threads = inside.substr(0, comma);
            } else {
                kept += text.substr(at, close - at);
            }
            at = close;
            continue;
        }
        kernel.name = word;
        kept += word;
        at += word.size();
    }
    return {kernel, kept};
}

// `extern __shared__ type name[];` becomes a pointer to the block's dynamic shared memory.
std::string dynamic_shared(const std::string &declaration) {
    std::string plain;
    Scanner scanner(declaration);
    for (size_t at = 0; at < declaration.size();) {
        std::string word = scanner.word(at);
        if (word == "__attribute__" || word == "alignas") {
            at = scanner.skip_brackets(scanner.skip_space(at + word.size()));
            continue;
        }
        plain += word;
        at += word.size();
    }
    size_t open = plain.find('['), close = plain.find(']', open);
    if (open == std::string::npos || close == std::string::npos) return "extern " + declaration;
    size_t name_end = open;
    while (name_end > 0 && !is_word(plain[name_end - 1])) --name_end;
    size_t name_start = name_end;
    while (name_start > 0 && is_word(plain[name_start - 1])) --name_start;
    std::string type = plain.substr(0, name_start), name = plain.substr(name_start, name_end - name_start);
    std::string rest = plain.substr(close + 1);
    return "static " + type + "(*const " + name + ")" + rest + " = (" + type + "(*)" + rest + ")emulator::dynamic_shared";
}

}  // namespace

std::string rewrite(const std::string &source, const std::string &stamp) {
    Scanner scanner(source);
    std::string result, previous;
    std::vector<KernelName> kernels;
    for (size_t at = 0; at < source.size();) {
        size_t next = scanner.skip_space(at);
        result += source.substr(at, next - at);
        at = next;
        if (at >= source.size()) break;
        std::string word = scanner.word(at);
        if (word == "__global__") {
            bool is_template = previous == ">";
            at += word.size();
            auto [kernel, kept] = read_kernel(source, scanner, at);
            result += kept;
            bool seen = is_template;
            for (auto &other : kernels) seen |= other.name == kernel.name;
            if (!seen) kernels.push_back(kernel);
            previous = kernel.name;
            continue;
        }
        if (word == "extern" && scanner.word(scanner.skip_space(at + 6)) == "__shared__") {
            size_t start = scanner.skip_space(at + 6) + 10, end = start;
            while (end < source.size() && source[end] != ';') ++end;
            result += dynamic_shared(source.substr(start, end - start));
            at = end;
            previous = "";
            continue;
        }
        result += word == "__shared__" ? "static" : word;
        at += word.size();
        previous = word;
    }
    result += "\nnamespace emulator {\nstatic const Kernel kernels[] = {";
    for (auto &kernel : kernels) result += "describe<::" + kernel.name + ">(\"" + kernel.name + "\", " + kernel.max_threads + "), ";
    result += "{}};\nextern \"C\" __attribute__((visibility(\"default\"))) const Module emulator_module;\n"
              "const Module emulator_module = {\"" + stamp + "\", &position, &runtime, kernels, " +
              std::to_string(kernels.size()) + ", dynamic_shared};\n}\n";
    return result;
}

}  // namespace emulator
