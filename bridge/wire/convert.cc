#include "bridge/wire/convert.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "policy/utf8.h"

namespace lockstep::wire {
namespace {

// Bytes of the well-formed UTF-8 character at the start of `text`; 0 if none.
size_t CharacterBytes(absl::string_view text) {
  constexpr size_t kLongest = 4;
  for (size_t size = 1; size <= std::min(kLongest, text.size()); ++size) {
    if (IsValidUtf8(text.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

std::string CleanText(absl::string_view text, uint64_t max_bytes) {
  if (text.size() <= max_bytes && IsValidUtf8(text)) return std::string(text);
  std::string clean;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (clean.size() + std::max<size_t>(size, 1) > max_bytes) break;
    if (size == 0) {
      clean.push_back('?');
      text.remove_prefix(1);
    } else {
      absl::StrAppend(&clean, text.substr(0, size));
      text.remove_prefix(size);
    }
  }
  return clean;
}

unsigned ListSize(uint64_t count) {
  constexpr uint64_t kMaxCapnpList = (uint64_t{1} << 29) - 1;
  if (count > kMaxCapnpList) {
    std::fprintf(stderr, "lockstep: a message with a list of %llu elements was to be sent\n",
                 static_cast<unsigned long long>(count));
    std::abort();
  }
  return static_cast<unsigned>(count);
}

bool FieldReader::CheckAtMost(uint64_t value, uint64_t limit, absl::string_view kind,
                              absl::string_view what) {
  if (!status_.ok()) return false;
  if (value <= limit) return true;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("bad message: ", what, ": ", kind, " ", value, " is above the limit ", limit));
  return false;
}

FieldReader& FieldReader::Text(capnp::Text::Reader from, uint64_t max_bytes, absl::string_view what,
                               std::string& to) {
  if (!CheckAtMost(from.size(), max_bytes, "bytes", what)) return *this;
  const absl::string_view text(from.begin(), from.size());
  if (!IsValidUtf8(text)) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("bad message: ", what, ": ", text.size(), " bytes that are not UTF-8"));
    return *this;
  }
  to.assign(text.data(), text.size());
  return *this;
}

FieldReader& FieldReader::Bytes(capnp::Data::Reader from, absl::string_view what,
                                absl::Span<uint8_t> to) {
  if (!status_.ok()) return *this;
  if (from.size() != to.size()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("bad message: ", what, ": expected ", to.size(), " bytes, got ", from.size()));
    return *this;
  }
  std::copy(from.begin(), from.end(), to.begin());
  return *this;
}

FieldReader& FieldReader::Texts(capnp::List<capnp::Text>::Reader from, uint64_t max_count,
                                uint64_t max_bytes, absl::string_view what,
                                std::vector<std::string>& to) {
  if (!CheckAtMost(from.size(), max_count, "list of", what)) return *this;
  to.resize(from.size());
  for (unsigned i = 0; i < from.size(); ++i) Text(from[i], max_bytes, what, to[i]);
  return *this;
}

}  // namespace lockstep::wire
