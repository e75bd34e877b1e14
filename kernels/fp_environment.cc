#include "kernels/fp_environment.h"

#include <cstdint>

#include "absl/strings/str_format.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lockstep::kernels {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kDenormalsAreZero = 1u << 6;
constexpr uint32_t kRounding = 3u << 13;
constexpr uint32_t kFlushToZero = 1u << 15;
constexpr uint32_t kForbidden = kDenormalsAreZero | kRounding | kFlushToZero;
constexpr const char* kRegister = "MXCSR";

uint64_t ControlWord() { return _mm_getcsr(); }
#elif defined(__aarch64__)
constexpr uint64_t kFlushHalf = 1u << 19;
constexpr uint64_t kRounding = 3u << 22;
constexpr uint64_t kFlush = 1u << 24;
constexpr uint64_t kForbidden = kFlushHalf | kRounding | kFlush;
constexpr const char* kRegister = "FPCR";

uint64_t ControlWord() {
  uint64_t word;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}
#else
#error "exact programs need to know the floating-point control word of this architecture"
#endif

}  // namespace

absl::Status CheckFpEnvironment() {
  const uint64_t word = ControlWord();
  if ((word & kForbidden) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "floating-point control word %s is 0x%x on this thread: expected denormals kept and rounding "
      "to nearest even (bits 0x%x clear); a library built with fast-math probably set it at load "
      "time: find and remove it, or restore the word on this thread",
      kRegister, word, static_cast<uint64_t>(kForbidden)));
}

}  // namespace lockstep::kernels
