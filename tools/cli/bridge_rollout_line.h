#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_ROLLOUT_LINE_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_ROLLOUT_LINE_H_

// Recorded rollouts, one JSON object a line. Keys that count; others (prompt, reward, ...) are
// part of the line's identity and say nothing else:
//   policy_version    whole number; the version that decoded all tokens. Not needed with spans.
//   spans             optional: [[VERSION, START, END], ...], tokens [START, END) under VERSION
//   tokens            token ids of the completion
//   sampler_logprobs  optional: float32 a token, as recorded when the token was chosen
//   trainer_logprobs  optional: the trainer's re-scoring, float32 a token
//   id                optional: a string; else the hex of the content below
// The content is the BLAKE2b-256 of the canonical line, which is written as contracts are: keys
// sorted bytewise, no white space, UTF-8, integers in decimal, floats as a string of the 8
// lower-case hex digits of their float32 bits. What stands in the two lists of log-probabilities
// is a float, also where it was written as 0.
//
// Example:
//   RolloutFile file(stream);
//   while (std::optional<RolloutFileLine> line = file.Next()) { ... line->rollout ... }

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/protocol.h"

namespace lockstep::tools {

inline constexpr size_t kMaxRolloutLineBytes = size_t{64} << 20;

struct RecordedRollout {
  Rollout rollout;  // id, content, spans, tokens, sampler_logprobs; the rest is the caller's
  std::optional<std::vector<float>> trainer_logprobs;
};

// InvalidArgument says which key is wrong, what was expected and what was found.
absl::StatusOr<RecordedRollout> ReadRolloutLine(absl::string_view line);

// The bytes that are hashed. InvalidArgument when `line` is no JSON object.
absl::StatusOr<std::string> CanonicalRolloutLine(absl::string_view line);

struct RolloutFileLine {
  uint64_t number = 0;  // from 1, as editors count
  absl::StatusOr<RecordedRollout> rollout;
};

// Reads line by line, so that a file may be larger than memory. Blank lines are skipped; a line
// over kMaxRolloutLineBytes is an error of that line.
class RolloutFile {
 public:
  explicit RolloutFile(std::istream& in) : in_(in) {}

  // nullopt at the end.
  std::optional<RolloutFileLine> Next();

 private:
  // False at the end of the file. `too_long`: the rest of the line was passed over.
  bool TakeLine(std::string& line, bool& too_long);

  std::istream& in_;
  uint64_t number_ = 0;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_ROLLOUT_LINE_H_
