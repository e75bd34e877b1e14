#include "bridge/auth/allow_list.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bridge/auth/keys.h"
#include "policy/status_macros.h"

namespace lockstep::auth {
namespace {

bool IsRole(absl::string_view text) {
  return text == "trainer" || text == "sampler" || text == "operator";
}

// It becomes half of a ZAP User-Id, in which ':' separates.
bool IsName(absl::string_view text) {
  if (text.empty() || text.size() > kMaxAllowedNameBytes) return false;
  for (char c : text) {
    if (!absl::ascii_isgraph(c) || c == ':') return false;
  }
  return true;
}

absl::Status BadLine(size_t line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("allow-list line ", line, ": ", why,
                                                 "; a line is KEY NAME trainer|sampler|operator"));
}

}  // namespace

absl::StatusOr<AllowList> AllowList::Parse(absl::string_view text) {
  AllowList list;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (fields.size() != 3) return BadLine(number, absl::StrCat(fields.size(), " fields"));
    if (!IsKey(fields[0])) return BadLine(number, "the key is not 40 characters of Z85");
    if (!IsName(fields[1])) {
      return BadLine(number, absl::StrCat("the name is not 1 to ", kMaxAllowedNameBytes,
                                          " visible ASCII characters without ':'"));
    }
    if (!IsRole(fields[2]))
      return BadLine(number, absl::StrCat("no role is called '", fields[2], "'"));
    if (list.user_ids_.size() >= kMaxAllowedKeys) {
      return BadLine(number, absl::StrCat("more than ", kMaxAllowedKeys, " keys"));
    }
    if (!list.user_ids_.emplace(fields[0], absl::StrCat(fields[1], ":", fields[2])).second) {
      return BadLine(number, "the key was on an earlier line");
    }
  }
  return list;
}

absl::StatusOr<AllowList> AllowList::Load(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxAllowListBytes));
  absl::StatusOr<AllowList> list = Parse(text);
  if (list.ok()) return list;
  return absl::Status(list.status().code(), absl::StrCat(path, ": ", list.status().message()));
}

const std::string* AllowList::Find(const std::string& public_key) const {
  const auto found = user_ids_.find(public_key);
  return found == user_ids_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::auth
