#ifndef LOCKSTEP_TESTS_E2E_CHECKPOINT_EDIT_H_
#define LOCKSTEP_TESTS_E2E_CHECKPOINT_EDIT_H_

// Takes a safetensors file apart and writes it again, damaged or changed as a test wants:
// 8 bytes of header length (little-endian), a JSON header, the data.

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace lockstep::e2e {

struct Checkpoint {
  nlohmann::ordered_json header;
  std::string data;

  static Checkpoint Read(const std::string& path);
  void Write(const std::string& path) const;
  // The header's text as given, under a length of the caller's choice.
  void WriteRaw(const std::string& path, const std::string& header_text,
                uint64_t header_length) const;

  // Appends a tensor after the others.
  void Add(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape,
           const std::string& bytes);
  // With its bytes; those behind it move up.
  void Remove(const std::string& name);
  // The tensor's bytes in `data`.
  std::string BytesOf(const std::string& name) const;
  void Overwrite(const std::string& name, uint64_t offset, const std::string& bytes);
};

}  // namespace lockstep::e2e

#endif  // LOCKSTEP_TESTS_E2E_CHECKPOINT_EDIT_H_
