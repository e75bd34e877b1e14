#ifndef LOCKSTEP_TESTS_GOLDEN_GOLDEN_DATA_H_
#define LOCKSTEP_TESTS_GOLDEN_GOLDEN_DATA_H_

// Recorded bytes under tests/golden/data, for golden tests. vectors/index.json lists, for each
// file of byte vectors, its op, program, realisation and options (as of `lockstep kernel run`);
// inputs carry the op's tensor names, expected outputs the prefix `want_`.
//
// Example:
//   for (const GoldenVector& vector : *ReadGoldenIndex()) {
//     if (vector.op != "swiglu") continue;
//     GoldenTensors tensors = *ReadGoldenTensors("vectors/" + vector.file);
//     const GoldenTensor& gate = tensors.at("gate");
//   }

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/manifest.h"

namespace lockstep::golden {

struct GoldenTensor {
  Dtype dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // row-major, little-endian; aligned for any element

  const void* data() const { return bytes.data(); }
};

using GoldenTensors = std::map<std::string, GoldenTensor>;

struct GoldenVector {
  std::string file;  // under vectors/
  std::string op;
  std::string program;
  std::string realisation;                     // empty when the program has none
  std::map<std::string, std::string> options;  // a bare flag has the value "true"
};

absl::StatusOr<std::vector<GoldenVector>> ReadGoldenIndex();

// `file` is relative to tests/golden/data.
absl::StatusOr<GoldenTensors> ReadGoldenTensors(const std::string& file);

}  // namespace lockstep::golden

#endif  // LOCKSTEP_TESTS_GOLDEN_GOLDEN_DATA_H_
