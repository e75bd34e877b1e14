#ifndef LOCKSTEP_TESTS_GOLDEN_GOLDEN_FILE_H_
#define LOCKSTEP_TESTS_GOLDEN_GOLDEN_FILE_H_

// Recorded byte vectors: safetensors files under data/, and the index that says how each was made.
//
// Example:
//   for (const GoldenCase& c : GoldenCasesOf("gemm")) {
//     const GoldenFile file(c.file);
//     const std::vector<uint16_t> a = file.Values<uint16_t>("a");
//     ...
//     EXPECT_EQ(out, file.Values<uint16_t>("want_out")) << c.file;
//   }

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "policy/safetensors.h"

namespace lockstep::kernels {

// One entry of data/vectors/index.json.
struct GoldenCase {
  std::string file;  // within data/
  std::string op;
  std::string program;
  std::string realisation;                     // empty where none applies
  std::map<std::string, std::string> options;  // a bare flag has the value "true"

  // The option as a float32, rounded once from its decimal text; `fallback` when absent.
  float Option(const std::string& name, float fallback) const;
};

// Entries of the index for one op; aborts when there are none or the index is unreadable.
std::vector<GoldenCase> GoldenCasesOf(const std::string& op);

// Aborts with the file's name on anything unreadable: the data is part of the tree.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& file);  // within data/

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  const std::vector<uint64_t>& Shape(const std::string& name) const;
  Dtype Type(const std::string& name) const;

  // The tensor's elements; T has the size of its dtype.
  template <class T>
  std::vector<T> Values(const std::string& name) const {
    const std::string bytes = Bytes(name, sizeof(T));
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  const SafetensorsTensor* Find(const std::string& name) const;
  const SafetensorsTensor& At(const std::string& name) const;
  std::string Bytes(const std::string& name, size_t element_bytes) const;

  std::string file_;
  std::string contents_;
  SafetensorsHeader header_;
};

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GOLDEN_GOLDEN_FILE_H_
