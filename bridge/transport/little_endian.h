#ifndef LOCKSTEP_BRIDGE_TRANSPORT_LITTLE_ENDIAN_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_LITTLE_ENDIAN_H_

// Unsigned integers at fixed places of a frame, little-endian on every host.
//
// Example:
//   StoreLe<uint32_t>(frame.data() + 4, 7);
//   uint32_t value = LoadLe<uint32_t>(frame.data() + 4);

#include <cstddef>
#include <cstdint>

namespace lockstep::transport {

template <typename T>
void StoreLe(uint8_t* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}

template <typename T>
T LoadLe(const uint8_t* at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(at[i]) << (8 * i));
  return value;
}

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_LITTLE_ENDIAN_H_
