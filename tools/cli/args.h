#ifndef LOCKSTEP_TOOLS_CLI_ARGS_H_
#define LOCKSTEP_TOOLS_CLI_ARGS_H_

// A command line after the command's name: flags with and without values, and positional
// words. `--name VALUE`, `--name=VALUE`, `-o VALUE` and `--` (the rest is positional) are
// understood; an unknown flag is an error that names the nearest known one.
//
// Example:
//   const FlagSpec flags[] = {{"--tp", "N", "tensor parallel degree"}, {"--exact", "", "..."}};
//   LOCKSTEP_ASSIGN_OR_RETURN(Args args, Args::Parse(words, flags, 1, 1));
//   LOCKSTEP_ASSIGN_OR_RETURN(std::optional<uint64_t> tp, args.U64("--tp"));

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep::tools {

struct FlagSpec {
  absl::string_view name;
  absl::string_view value;  // the value's name in the usage; empty: a switch
  absl::string_view help;
};

class Args {
 public:
  // InvalidArgument for an unknown flag, a missing or unwanted value, a flag given twice, or
  // a number of positional words outside [min_words, max_words].
  static absl::StatusOr<Args> Parse(absl::Span<const std::string> words,
                                    absl::Span<const FlagSpec> flags, size_t min_words,
                                    size_t max_words);

  bool Has(absl::string_view flag) const;
  std::optional<std::string> Text(absl::string_view flag) const;
  std::string TextOr(absl::string_view flag, absl::string_view otherwise) const;
  // InvalidArgument when given and not a decimal unsigned number.
  absl::StatusOr<std::optional<uint64_t>> U64(absl::string_view flag) const;
  // InvalidArgument when given and not a finite number.
  absl::StatusOr<std::optional<double>> Number(absl::string_view flag) const;
  // InvalidArgument, listing `allowed`, when given and not one of them.
  absl::StatusOr<std::optional<std::string>> OneOf(
      absl::string_view flag, absl::Span<const absl::string_view> allowed) const;

  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> words_;
};

// "  --tp N    tensor parallel degree" per flag, aligned.
std::string FlagHelp(absl::Span<const FlagSpec> flags);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_ARGS_H_
