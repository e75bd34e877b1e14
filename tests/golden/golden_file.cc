#include "tests/golden/golden_file.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

namespace lockstep::kernels {
namespace {

constexpr char kData[] = "tests/golden/data/";

[[noreturn]] void Die(const std::string& file, const std::string& why) {
  std::cerr << "golden data " << file << ": " << why << std::endl;
  std::abort();
}

std::string ReadAll(const std::string& file) {
  std::ifstream in(kData + file, std::ios::binary);
  if (!in) Die(file, "cannot be opened");
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

float GoldenCase::Option(const std::string& name, float fallback) const {
  const auto it = options.find(name);
  if (it == options.end()) return fallback;
  float value;
  if (!absl::SimpleAtof(it->second, &value)) Die(file, "option " + name + " is no number");
  return value;
}

std::vector<GoldenCase> GoldenCasesOf(const std::string& op) {
  const std::string index = "vectors/index.json";
  const nlohmann::json json = nlohmann::json::parse(ReadAll(index), nullptr, false);
  if (!json.is_array()) Die(index, "is no JSON array");
  std::vector<GoldenCase> cases;
  for (const nlohmann::json& entry : json) {
    GoldenCase c;
    c.op = entry.value("op", "");
    if (c.op != op) continue;
    c.file = "vectors/" + entry.value("file", "");
    c.program = entry.value("program", "");
    c.realisation = entry.value("realisation", "");
    for (const auto& [name, value] : entry["options"].items()) {
      c.options[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
    cases.push_back(std::move(c));
  }
  if (cases.empty()) Die(index, "has no case of " + op);
  return cases;
}

GoldenFile::GoldenFile(const std::string& file) : file_(file), contents_(ReadAll(file)) {
  SafetensorsParse parse = ParseSafetensorsHeader(contents_.size(), contents_);
  if (!parse.refusals.empty()) Die(file_, "is no safetensors file");
  header_ = std::move(parse.header);
}

const SafetensorsTensor* GoldenFile::Find(const std::string& name) const {
  for (const SafetensorsTensor& tensor : header_.tensors) {
    if (tensor.spec.name == name) return &tensor;
  }
  return nullptr;
}

const SafetensorsTensor& GoldenFile::At(const std::string& name) const {
  const SafetensorsTensor* tensor = Find(name);
  if (tensor == nullptr) Die(file_, "has no tensor " + name);
  return *tensor;
}

const std::vector<uint64_t>& GoldenFile::Shape(const std::string& name) const {
  return At(name).spec.shape;
}

Dtype GoldenFile::Type(const std::string& name) const { return At(name).spec.dtype; }

std::string GoldenFile::Bytes(const std::string& name, size_t element_bytes) const {
  const SafetensorsTensor& tensor = At(name);
  if (DtypeBytes(tensor.spec.dtype) != element_bytes) {
    Die(file_, name + " is " + std::string(DtypeName(tensor.spec.dtype)));
  }
  return contents_.substr(tensor.data_begin, tensor.data_end - tensor.data_begin);
}

}  // namespace lockstep::kernels
