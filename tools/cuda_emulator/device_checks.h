// Faults that a GPU answers with a trap, or worse with wrong numbers: the compiler's checks for misaligned accesses and for
// indices past an array call these, with the place in the source.
#pragma once

extern "C" {
inline __attribute__((used)) void __ubsan_handle_type_mismatch_v1_abort(emulator::SourceLocation *where, void *) {
    emulator::runtime->fail("misaligned or null address", where);
}
inline __attribute__((used)) void __ubsan_handle_out_of_bounds_abort(emulator::SourceLocation *where, void *) {
    emulator::runtime->fail("index past the end of an array", where);
}
inline __attribute__((used)) void __ubsan_handle_shift_out_of_bounds_abort(emulator::SourceLocation *where, void *, void *) {
    emulator::runtime->fail("shift by more bits than the value has", where);
}
}
inline void __trap() { emulator::runtime->fail("__trap()", nullptr); }
#define assert(condition) \
    ((condition) ? (void)0 : [] { static emulator::SourceLocation where = {__FILE__, __LINE__, 0}; \
                                  emulator::runtime->fail("assertion failed: " #condition, &where); }())
