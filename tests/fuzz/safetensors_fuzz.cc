// Whatever a file says, its header is refused with reasons or is one that covers the file
// exactly and that the writer can write again.

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/manifest.h"
#include "policy/safetensors.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// The first byte of the input says how much data follows the header, in bytes.
void Judge(absl::string_view input) {
  const uint64_t data_bytes = static_cast<uint8_t>(input[0]);
  const absl::string_view prefix = input.substr(1);
  const uint64_t file_bytes = prefix.size() + data_bytes;
  const auto parse = lockstep::ParseSafetensorsHeader(file_bytes, prefix);
  if (!parse.refusals.empty()) {
    for (const auto& refusal : parse.refusals) Require(!refusal.message.empty());
    return;
  }
  uint64_t covered = parse.header.data_start;
  std::vector<lockstep::TensorSpec> specs;
  for (const auto& tensor : parse.header.tensors) {
    Require(tensor.data_begin <= tensor.data_end && tensor.data_end <= file_bytes);
    Require(*lockstep::TensorBytes(tensor.spec) == tensor.data_end - tensor.data_begin);
    covered += tensor.data_end - tensor.data_begin;
    specs.push_back(tensor.spec);
  }
  Require(covered == file_bytes);
  const auto written = lockstep::WriteSafetensorsHeader(specs, parse.header.metadata);
  Require(written.ok());
  const uint64_t bytes = written->size() + covered - parse.header.data_start;
  const auto again = lockstep::ParseSafetensorsHeader(bytes, *written);
  Require(again.refusals.empty() && again.header.metadata == parse.header.metadata);
  Require(again.header.tensors.size() == specs.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) Judge(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
