#ifndef LOCKSTEP_TESTS_GOLDEN_TRACE_FILE_H_
#define LOCKSTEP_TESTS_GOLDEN_TRACE_FILE_H_

// A recorded GRPO trace (tests/data/traces): its config, checkpoints and rollouts. Aborts with the
// file's name on anything unreadable: the data is part of the tree.
//
// Example:
//   const TraceCheckpoint step("qwen3_5_dense", 0);
//   absl::StatusOr<Scorer> scorer = Scorer::Create(TraceQwenConfig("qwen3_5_dense"),
//   step.Lookup());

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/scorer.h"

namespace lockstep::kernels {

struct TraceRollout {
  int policy_version = 0;
  ScoredSequence sequence;
  std::vector<double> sampler_logprobs;
  std::vector<double> trainer_logprobs;
};

// Every BF16 tensor of one step's checkpoint, each in aligned memory of its own.
class TraceCheckpoint {
 public:
  TraceCheckpoint(const std::string& trace, int step);

  // Aborts where there is none.
  LayerWeight At(const std::string& name) const;
  // Borrows from this.
  WeightLookup Lookup() const;

 private:
  std::map<std::string, std::vector<uint16_t>> tensors_;
};

std::vector<TraceRollout> ReadTraceRollouts(const std::string& trace);
Qwen35DenseConfig TraceQwenConfig(const std::string& trace);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_TESTS_GOLDEN_TRACE_FILE_H_
