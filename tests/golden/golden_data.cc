#include "tests/golden/golden_data.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "policy/refusal.h"
#include "policy/safetensors.h"

namespace lockstep::golden {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& file) {
  const std::string path = absl::StrCat("tests/golden/data/", file);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

}  // namespace

absl::StatusOr<std::vector<GoldenVector>> ReadGoldenIndex() {
  absl::StatusOr<std::string> text = ReadFile("vectors/index.json");
  if (!text.ok()) return text.status();
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return absl::DataLossError("vectors/index.json: expected a JSON array");
  std::vector<GoldenVector> vectors;
  for (const auto& entry : json) {
    GoldenVector vector;
    vector.file = entry.value("file", "");
    vector.op = entry.value("op", "");
    vector.program = entry.value("program", "");
    vector.realisation = entry.value("realisation", "");
    for (const auto& option : entry.at("options").items()) {
      const auto& value = option.value();
      vector.options[option.key()] = value.is_string() ? value.get<std::string>() : value.dump();
    }
    vectors.push_back(vector);
  }
  return vectors;
}

absl::StatusOr<GoldenTensors> ReadGoldenTensors(const std::string& file) {
  absl::StatusOr<std::string> bytes = ReadFile(file);
  if (!bytes.ok()) return bytes.status();
  const SafetensorsParse parse = ParseSafetensorsHeader(bytes->size(), *bytes);
  if (!parse.refusals.empty()) {
    return absl::DataLossError(absl::StrCat(file, ": not a safetensors file"));
  }
  GoldenTensors tensors;
  for (const SafetensorsTensor& tensor : parse.header.tensors) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes->data());
    tensors[tensor.spec.name] = {
        .dtype = tensor.spec.dtype,
        .shape = {tensor.spec.shape.begin(), tensor.spec.shape.end()},
        .bytes = {data + tensor.data_begin, data + tensor.data_end},
    };
  }
  return tensors;
}

}  // namespace lockstep::golden
