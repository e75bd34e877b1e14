#ifndef LOCKSTEP_POLICY_SAFETENSORS_JSON_H_
#define LOCKSTEP_POLICY_SAFETENSORS_JSON_H_

// The JSON inside a safetensors header, token by token; used by policy/safetensors only.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/manifest.h"

namespace lockstep {

inline constexpr absl::string_view kSafetensorsMetadataKey = "__metadata__";

// What a file says, escaped and cut, for use in a message.
std::string ShownText(absl::string_view text);

// A tensor as the header states it; offsets still count from the data section.
struct StatedSafetensor {
  TensorSpec spec;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
  std::vector<uint64_t> offsets;  // two once the tensor is complete
};

// Accepts the one JSON shape of the format and stops at the first token outside it. A SAX
// handler sees duplicate keys, which a DOM would merge in silence, and keeps nesting flat.
class SafetensorsJsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(int64_t value) override;
  bool number_unsigned(uint64_t value) override;
  bool number_float(double value, const std::string& text) override;
  bool string(std::string& value) override;
  bool binary(nlohmann::json::binary_t& value) override;
  bool start_object(size_t size) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(size_t size) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override;

  // After success, in the order of the file.
  std::vector<StatedSafetensor>& tensors() { return tensors_; }
  std::map<std::string, std::string>& metadata() { return metadata_; }
  // After a stop: why, and the tensor that was being read (empty outside one).
  const std::string& failure() const { return failure_; }
  const std::string& failed_tensor() const { return subject_; }

 private:
  enum class State {
    kStart,
    kInHeader,
    kMetadataObject,
    kInMetadata,
    kMetadataValue,
    kTensorObject,
    kInTensor,
    kDtypeValue,
    kShapeArray,
    kInShape,
    kOffsetsArray,
    kInOffsets,
    kDone,
  };

  bool Fail(std::string why);
  bool Unexpected(absl::string_view came);
  absl::string_view Expected() const;
  bool HeaderKey(const std::string& name);
  bool MetadataKey(const std::string& name);
  bool TensorKey(const std::string& name);

  State state_ = State::kStart;
  std::string subject_;
  std::string metadata_key_;
  StatedSafetensor tensor_;
  std::set<std::string> names_;
  std::vector<StatedSafetensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string failure_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_SAFETENSORS_JSON_H_
