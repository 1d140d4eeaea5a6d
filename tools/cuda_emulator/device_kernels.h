// Calls a kernel with the arguments that a launch gives by address. The table of kernels is written behind
// the source once it is known which there are.
#pragma once

namespace emulator {
template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<const T> { typedef T type; };

template <auto function> struct Invoke;
template <class... Parameters, void (*function)(Parameters...)> struct Invoke<function> {
    template <unsigned... at> struct Numbers {};
    template <unsigned count, unsigned... at> struct Count : Count<count - 1, count - 1, at...> {};
    template <unsigned... at> struct Count<0, at...> { typedef Numbers<at...> type; };

    static constexpr unsigned count = sizeof...(Parameters);
    static constexpr unsigned sizes[count + 1] = {sizeof(Parameters)..., 0};
    template <unsigned... at> static void with(void *const *arguments, Numbers<at...>) {
        function(*(typename Plain<Parameters>::type *)arguments[at]...);
    }
    static void call(void *const *arguments) { with(arguments, typename Count<count>::type()); }
};
template <auto function> constexpr Kernel describe(const char *name, unsigned max_threads) {
    return {name, Invoke<function>::call, Invoke<function>::sizes, Invoke<function>::count, max_threads};
}
}  // namespace emulator
