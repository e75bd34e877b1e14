#ifndef LOCKSTEP_TOOLS_STORY_STORY_H_
#define LOCKSTEP_TOOLS_STORY_STORY_H_

// The main job, played by the real binaries on a recorded GRPO run: one bridge, one trainer
// process that publishes the checkpoints as they appear, two samplers of the trainer's
// contract (shared memory and TCP), a third that states another one, and the run's rollouts.
// The demo shows it; the end-to-end tests play it on every trace.
//
// Example:
//   Story story(options);
//   absl::Status played = story.Play();
//   PrintReport(story.report(), std::cout);

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "tools/process/child_process.h"

namespace lockstep::tools {

struct StoryOptions {
  std::string title;
  // A folder with config.json, step0.safetensors, step1.safetensors, ... and rollouts.jsonl.
  std::string trace;
  std::string lockstep;   // the CLI's binary
  std::string lockstepd;  // the bridge's
  std::string work;       // an empty folder of the story's own, owner-only, with a short path
  std::vector<std::string> contract_flags;           // of the trainer and the samplers s1 and s2
  std::vector<std::string> odd_flags;                // of s3
  std::string odd_program;                           // what the refusal of s3 must name
  uint64_t expected_refused_rollouts = 0;            // all with `logprob_mismatch`
  bool keep = false;                                 // leave the bridge and the samplers running
  std::function<void(const std::string&)> progress;  // a line while it runs
};

struct SamplerCell {
  std::string state;
  uint64_t components_verified = 0;
  uint64_t components_total = 0;
};

struct VersionRow {
  uint64_t version = 0;
  uint64_t bytes = 0;
  double changed = -1;  // share of the 16-bit elements that differ from the version before
  std::vector<SamplerCell> samplers;  // s1, s2
  bool dumps_equal = false;  // what s1 and s2 serve is the published file, tensor by tensor
  uint64_t rollouts = 0;
  uint64_t admitted = 0;
  uint64_t refused = 0;
};

struct RefusedRollout {
  std::string id;
  std::string reason;
  uint64_t version = 0;
  uint64_t mismatched_tokens = 0;
  double max_abs_diff = 0;
  double k3 = 0;          // float64, expm1(d) - d
  double k3_float32 = 0;  // float32, (exp(d) - d) - 1, as usually computed
};

struct Expectation {
  std::string claim;
  bool held = false;
  std::string seen;  // when it did not hold
};

struct StoryReport {
  std::string title;
  std::string contract;
  std::vector<VersionRow> versions;
  std::string odd_reason;  // the sentence that refused s3
  std::vector<RefusedRollout> refused;
  std::vector<Expectation> expectations;
  double seconds = 0;
  std::string address;  // of the bridge

  bool AllHeld() const;
};

class Story {
 public:
  explicit Story(StoryOptions options);
  ~Story();

  // An error: the story could not be played to its end (the report holds what was seen).
  // Expectations that did not hold are no error here.
  absl::Status Play();

  const StoryReport& report() const { return report_; }

 private:
  absl::Status StartBridge();
  absl::Status StartPeers();
  absl::Status PlayVersion(uint64_t version);
  absl::Status SubmitRollouts(uint64_t version, VersionRow& row);
  absl::Status SubmitFile(const std::string& path, const std::string& sampler, VersionRow& row);
  absl::Status NoteVersion(uint64_t version, VersionRow& row);
  absl::StatusOr<bool> DumpsEqual(uint64_t version);
  absl::Status CheckOddSampler();
  void CheckTotals();
  void Leave();

  // Runs the CLI; an exit code that is not among `accepted` is an error with what it said.
  absl::StatusOr<Finished> Cli(std::vector<std::string> words, std::vector<int> accepted);
  absl::StatusOr<nlohmann::json> CliJson(std::vector<std::string> words, std::vector<int> accepted);
  absl::StatusOr<std::unique_ptr<ChildProcess>> StartCli(const std::string& name,
                                                         std::vector<std::string> words);
  void Expect(std::string claim, bool held, std::string seen = "");
  void Say(const std::string& line) const;

  StoryOptions options_;
  StoryReport report_;
  std::vector<uint64_t> versions_;
  std::unique_ptr<ChildProcess> bridge_;
  std::vector<std::unique_ptr<ChildProcess>> peers_;
};

// Table, refusals and expectations, for people.
std::string ReportText(const StoryReport& report);

// Share of 16-bit words that differ between the data of two safetensors files of one layout.
absl::StatusOr<double> ChangedShare(const std::string& before, const std::string& after);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_STORY_STORY_H_
