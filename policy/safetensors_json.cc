#include "policy/safetensors_json.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

std::string ShownText(absl::string_view text) {
  constexpr size_t kMaxShownBytes = 80;
  return absl::CHexEscape(text.substr(0, kMaxShownBytes));
}

bool SafetensorsJsonHandler::null() { return Unexpected("null"); }

bool SafetensorsJsonHandler::boolean(bool value) { return Unexpected(value ? "true" : "false"); }

bool SafetensorsJsonHandler::binary(nlohmann::json::binary_t&) { return Unexpected("binary data"); }

bool SafetensorsJsonHandler::number_integer(int64_t value) {
  return Unexpected(absl::StrCat("the negative number ", value));
}

bool SafetensorsJsonHandler::number_float(double, const std::string& text) {
  return Unexpected(absl::StrCat("the number ", ShownText(text), ", which is no 64-bit integer"));
}

bool SafetensorsJsonHandler::number_unsigned(uint64_t value) {
  if (state_ == State::kInShape) {
    if (tensor_.spec.shape.size() == kMaxTensorRank) {
      return Fail(absl::StrCat("has more than ", kMaxTensorRank, " dimensions in its shape"));
    }
    tensor_.spec.shape.push_back(value);
    return true;
  }
  if (state_ == State::kInOffsets) {
    if (tensor_.offsets.size() == 2) return Fail("has more than two numbers in data_offsets");
    tensor_.offsets.push_back(value);
    return true;
  }
  return Unexpected(absl::StrCat("the number ", value));
}

bool SafetensorsJsonHandler::string(std::string& value) {
  if (state_ == State::kMetadataValue) {
    metadata_[metadata_key_] = std::move(value);
    state_ = State::kInMetadata;
    return true;
  }
  if (state_ == State::kDtypeValue) {
    const auto dtype = DtypeFromName(value);
    if (!dtype.has_value()) {
      return Fail(absl::StrCat("has the unknown dtype '", ShownText(value),
                               "'; expected one of the safetensors format, such as BF16 or F32"));
    }
    tensor_.spec.dtype = *dtype;
    state_ = State::kInTensor;
    return true;
  }
  return Unexpected(absl::StrCat("the string '", ShownText(value), "'"));
}

bool SafetensorsJsonHandler::start_object(size_t) {
  switch (state_) {
    case State::kStart:
      state_ = State::kInHeader;
      return true;
    case State::kMetadataObject:
      state_ = State::kInMetadata;
      return true;
    case State::kTensorObject:
      state_ = State::kInTensor;
      return true;
    default:
      return Unexpected("an object");
  }
}

bool SafetensorsJsonHandler::key(std::string& name) {
  if (state_ == State::kInHeader) return HeaderKey(name);
  if (state_ == State::kInMetadata) return MetadataKey(name);
  return TensorKey(name);
}

bool SafetensorsJsonHandler::end_object() {
  if (state_ == State::kInHeader) {
    state_ = State::kDone;
    return true;
  }
  if (state_ == State::kInTensor) {
    if (!tensor_.has_dtype) return Fail("has no dtype");
    if (!tensor_.has_shape) return Fail("has no shape");
    if (!tensor_.has_offsets) return Fail("has no data_offsets");
    tensors_.push_back(std::move(tensor_));
  }
  subject_.clear();
  state_ = State::kInHeader;
  return true;
}

bool SafetensorsJsonHandler::start_array(size_t) {
  if (state_ == State::kShapeArray) {
    state_ = State::kInShape;
    return true;
  }
  if (state_ == State::kOffsetsArray) {
    state_ = State::kInOffsets;
    return true;
  }
  return Unexpected("an array");
}

bool SafetensorsJsonHandler::end_array() {
  if (state_ == State::kInOffsets && tensor_.offsets.size() != 2) {
    return Fail(absl::StrCat("has ", tensor_.offsets.size(),
                             " numbers in data_offsets; expected [begin, end]"));
  }
  state_ = State::kInTensor;
  return true;
}

bool SafetensorsJsonHandler::parse_error(size_t position, const std::string& token,
                                         const nlohmann::json::exception& error) {
  // "[json.exception...] parse error at ...: what": the label is noise to a user.
  absl::string_view what = error.what();
  if (const size_t at = what.find("] "); at != what.npos) what = what.substr(at + 2);
  return Fail(absl::StrCat("is followed by invalid JSON at byte ", position, " near '",
                           ShownText(token), "': ", absl::CHexEscape(what.substr(0, 200))));
}

bool SafetensorsJsonHandler::Fail(std::string why) {
  failure_ = subject_.empty() ? absl::StrCat("the header ", why) : std::move(why);
  return false;
}

bool SafetensorsJsonHandler::Unexpected(absl::string_view came) {
  return Fail(absl::StrCat("should have ", Expected(), "; got ", came));
}

absl::string_view SafetensorsJsonHandler::Expected() const {
  switch (state_) {
    case State::kStart:
      return "one object";
    case State::kMetadataObject:
      return "an object as __metadata__";
    case State::kMetadataValue:
      return "a string for each __metadata__ key";
    case State::kTensorObject:
      return "an object with dtype, shape and data_offsets";
    case State::kDtypeValue:
      return "a string as dtype";
    case State::kShapeArray:
      return "an array as shape";
    case State::kInShape:
      return "integers >= 0 in shape";
    case State::kOffsetsArray:
      return "an array as data_offsets";
    case State::kInOffsets:
      return "integers >= 0 in data_offsets";
    default:
      return "nothing more";
  }
}

bool SafetensorsJsonHandler::HeaderKey(const std::string& name) {
  if (!names_.insert(name).second) {
    subject_ = name;
    return Fail("is listed twice; names must be unique");
  }
  if (name == kSafetensorsMetadataKey) {
    state_ = State::kMetadataObject;
    return true;
  }
  subject_ = name;
  if (name.size() > kMaxTensorNameBytes) {
    return Fail(
        absl::StrCat("has a name of ", name.size(), " bytes; the limit is ", kMaxTensorNameBytes));
  }
  if (tensors_.size() == kMaxTensors) {
    return Fail(absl::StrCat("is one too many; the limit is ", kMaxTensors, " tensors"));
  }
  tensor_ = StatedSafetensor();
  tensor_.spec.name = name;
  state_ = State::kTensorObject;
  return true;
}

bool SafetensorsJsonHandler::MetadataKey(const std::string& name) {
  if (metadata_.count(name) != 0) {
    return Fail(absl::StrCat("has the __metadata__ key '", ShownText(name), "' twice"));
  }
  metadata_key_ = name;
  state_ = State::kMetadataValue;
  return true;
}

bool SafetensorsJsonHandler::TensorKey(const std::string& name) {
  bool* seen = nullptr;
  if (name == "dtype") {
    seen = &tensor_.has_dtype;
    state_ = State::kDtypeValue;
  } else if (name == "shape") {
    seen = &tensor_.has_shape;
    state_ = State::kShapeArray;
  } else if (name == "data_offsets") {
    seen = &tensor_.has_offsets;
    state_ = State::kOffsetsArray;
  } else {
    return Fail(absl::StrCat("has the unknown key '", ShownText(name),
                             "'; expected dtype, shape and data_offsets only"));
  }
  if (*seen) return Fail(absl::StrCat("has the key '", name, "' twice"));
  *seen = true;
  return true;
}

}  // namespace lockstep
