#ifndef LOCKSTEP_KERNELS_TYPES_H_
#define LOCKSTEP_KERNELS_TYPES_H_

// The element types that exact programs read and write, and the digest type.
//
// Example:
//   size_t row_bytes = columns * SizeOf(FloatType::kBf16);

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

// 32 bytes of BLAKE2b-256; the same type as lockstep::Digest256 by construction.
using Digest256 = std::array<uint8_t, 32>;

enum class FloatType : uint8_t { kBf16, kF16, kF32, kF64 };

// The safetensors spelling, which is also the one in error messages.
constexpr const char* Name(FloatType type) {
  switch (type) {
    case FloatType::kBf16:
      return "BF16";
    case FloatType::kF16:
      return "F16";
    case FloatType::kF32:
      return "F32";
    case FloatType::kF64:
      return "F64";
  }
  return "unknown";
}

constexpr size_t SizeOf(FloatType type) {
  switch (type) {
    case FloatType::kBf16:
    case FloatType::kF16:
      return 2;
    case FloatType::kF32:
      return 4;
    case FloatType::kF64:
      return 8;
  }
  return 0;
}

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_TYPES_H_
