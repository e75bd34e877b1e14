#include "tools/cli/args.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/nearest.h"

namespace lockstep::tools {
namespace {

const FlagSpec* Find(absl::Span<const FlagSpec> flags, absl::string_view name) {
  for (const FlagSpec& flag : flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status UnknownFlag(absl::Span<const FlagSpec> flags, absl::string_view name) {
  std::vector<std::string> known;
  for (const FlagSpec& flag : flags) known.emplace_back(flag.name);
  const std::vector<std::string> near = NearestNames(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag '", name, "'",
                   near.empty() ? "" : absl::StrCat("; did you mean ", near.front(), "?")));
}

}  // namespace

absl::StatusOr<Args> Args::Parse(absl::Span<const std::string> words,
                                 absl::Span<const FlagSpec> flags, size_t min_words,
                                 size_t max_words) {
  Args args;
  bool only_words = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (only_words || word.size() < 2 || word[0] != '-') {
      args.words_.push_back(word);
      continue;
    }
    if (word == "--") {
      only_words = true;
      continue;
    }
    const size_t equals = absl::StartsWith(word, "--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const FlagSpec* flag = Find(flags, name);
    if (flag == nullptr) return UnknownFlag(flags, name);
    std::string value;
    if (flag->value.empty()) {
      if (equals != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat(name, " takes no value"));
      }
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value: ", flag->value));
    }
    if (!args.values_.emplace(name, value).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is given twice"));
    }
  }
  if (args.words_.size() < min_words || args.words_.size() > max_words) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected ",
        min_words == max_words ? absl::StrCat(min_words)
                               : absl::StrCat(min_words, " to ", max_words),
        " argument", max_words == 1 ? "" : "s", ", got ", args.words_.size(),
        args.words_.empty() ? "" : absl::StrCat(": ", absl::StrJoin(args.words_, " "))));
  }
  return args;
}

bool Args::Has(absl::string_view flag) const { return values_.find(flag) != values_.end(); }

std::optional<std::string> Args::Text(absl::string_view flag) const {
  const auto found = values_.find(flag);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::string Args::TextOr(absl::string_view flag, absl::string_view otherwise) const {
  return Text(flag).value_or(std::string(otherwise));
}

absl::StatusOr<std::optional<uint64_t>> Args::U64(absl::string_view flag) const {
  const std::optional<std::string> text = Text(flag);
  if (!text.has_value()) return std::optional<uint64_t>();
  uint64_t value = 0;
  const bool digits = !text->empty() && std::all_of(text->begin(), text->end(),
                                                    [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(*text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " takes a whole number from 0 to 2^64-1, got '", *text, "'"));
  }
  return std::optional<uint64_t>(value);
}

absl::StatusOr<std::optional<double>> Args::Number(absl::string_view flag) const {
  const std::optional<std::string> text = Text(flag);
  if (!text.has_value()) return std::optional<double>();
  double value = 0;
  if (!absl::SimpleAtod(*text, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " takes a number, got '", *text, "'"));
  }
  return std::optional<double>(value);
}

absl::StatusOr<std::optional<std::string>> Args::OneOf(
    absl::string_view flag, absl::Span<const absl::string_view> allowed) const {
  std::optional<std::string> text = Text(flag);
  if (text.has_value() && std::find(allowed.begin(), allowed.end(), *text) == allowed.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " takes one of ", absl::StrJoin(allowed, ", "), ", got '", *text, "'"));
  }
  return text;
}

std::string FlagHelp(absl::Span<const FlagSpec> flags) {
  size_t width = 0;
  const auto left = [](const FlagSpec& flag) {
    return absl::StrCat(flag.name, flag.value.empty() ? "" : " ", flag.value);
  };
  for (const FlagSpec& flag : flags) width = std::max(width, left(flag).size());
  std::string help;
  for (const FlagSpec& flag : flags) {
    const std::string text = left(flag);
    absl::StrAppend(&help, "  ", text, std::string(width - text.size() + 2, ' '), flag.help, "\n");
  }
  return help;
}

}  // namespace lockstep::tools
