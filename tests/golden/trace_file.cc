#include "tests/golden/trace_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "policy/safetensors.h"

namespace lockstep::kernels {
namespace {

using Json = nlohmann::json;

[[noreturn]] void Die(const std::string& file, const std::string& why) {
  std::cerr << "trace " << file << ": " << why << std::endl;
  std::abort();
}

std::string PathOf(const std::string& trace, const std::string& file) {
  return absl::StrCat("tests/golden/", trace, "/", file);
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) Die(path, "cannot be opened");
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Json ParseObject(const std::string& path, const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) Die(path, "is no JSON object");
  return json;
}

template <class T>
std::vector<T> Numbers(const std::string& path, const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) Die(path, absl::StrCat(key, " is no array"));
  std::vector<T> values;
  for (const Json& value : *it) {
    if (!value.is_number()) Die(path, absl::StrCat(key, " holds no number"));
    values.push_back(value.get<T>());
  }
  return values;
}

double Number(const std::string& path, const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number()) Die(path, absl::StrCat(key, " is no number"));
  return it->get<double>();
}

}  // namespace

TraceCheckpoint::TraceCheckpoint(const std::string& trace, int step) {
  const std::string path = PathOf(trace, absl::StrCat("step", step, ".safetensors"));
  const std::string contents = ReadAll(path);
  const SafetensorsParse parse = ParseSafetensorsHeader(contents.size(), contents);
  if (!parse.refusals.empty()) Die(path, "is no safetensors file");
  for (const SafetensorsTensor& tensor : parse.header.tensors) {
    if (tensor.spec.dtype != Dtype::kBF16) Die(path, tensor.spec.name + " is not BF16");
    const size_t bytes = tensor.data_end - tensor.data_begin;
    std::vector<uint16_t> values(bytes / sizeof(uint16_t));
    std::memcpy(values.data(), contents.data() + tensor.data_begin, bytes);
    tensors_.emplace(tensor.spec.name, std::move(values));
  }
}

LayerWeight TraceCheckpoint::At(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) Die("checkpoint", "has no tensor " + name);
  return {FloatType::kBf16, it->second.data(), static_cast<int64_t>(it->second.size())};
}

WeightLookup TraceCheckpoint::Lookup() const {
  return [this](absl::string_view name) -> absl::StatusOr<LayerWeight> {
    const auto it = tensors_.find(std::string(name));
    if (it == tensors_.end()) return absl::NotFoundError(absl::StrCat("no tensor '", name, "'"));
    return LayerWeight{FloatType::kBf16, it->second.data(),
                       static_cast<int64_t>(it->second.size())};
  };
}

std::vector<TraceRollout> ReadTraceRollouts(const std::string& trace) {
  const std::string path = PathOf(trace, "rollouts.jsonl");
  std::istringstream lines(ReadAll(path));
  std::vector<TraceRollout> rollouts;
  for (std::string line; std::getline(lines, line);) {
    const Json json = ParseObject(path, line);
    TraceRollout rollout;
    rollout.policy_version = static_cast<int>(Number(path, json, "policy_version"));
    rollout.sequence.prompt = Numbers<int64_t>(path, json, "prompt");
    rollout.sequence.completion = Numbers<int64_t>(path, json, "tokens");
    rollout.sampler_logprobs = Numbers<double>(path, json, "sampler_logprobs");
    rollout.trainer_logprobs = Numbers<double>(path, json, "trainer_logprobs");
    rollouts.push_back(std::move(rollout));
  }
  return rollouts;
}

Qwen35DenseConfig TraceQwenConfig(const std::string& trace) {
  const std::string path = PathOf(trace, "config.json");
  const Json json = ParseObject(path, ReadAll(path));
  const auto integer = [&](const char* key) {
    return static_cast<int64_t>(Number(path, json, key));
  };
  Qwen35DenseConfig config;
  Qwen35Sizes& s = config.sizes;
  s.hidden = integer("hidden_size"), s.intermediate = integer("intermediate_size");
  s.heads = integer("num_attention_heads"), s.kv_heads = integer("num_key_value_heads");
  s.head_dim = integer("head_dim");
  s.rotary_dim = static_cast<int64_t>(static_cast<double>(s.head_dim) *
                                      Number(path, json, "partial_rotary_factor"));
  s.rope_theta = static_cast<float>(Number(path, json["rope_parameters"], "rope_theta"));
  s.key_heads = integer("linear_num_key_heads"), s.key_dim = integer("linear_key_head_dim");
  s.value_heads = integer("linear_num_value_heads");
  s.value_dim = integer("linear_value_head_dim");
  s.eps = static_cast<float>(Number(path, json, "rms_norm_eps"));
  config.vocab = integer("vocab_size");
  config.tied_embeddings = json.value("tie_word_embeddings", false);
  for (const Json& kind : json["layer_types"]) {
    config.layers.push_back(kind == "linear_attention" ? Qwen35LayerKind::kLinearAttention
                                                       : Qwen35LayerKind::kFullAttention);
  }
  return config;
}

}  // namespace lockstep::kernels
