#ifndef LOCKSTEP_BRIDGE_CORE_REGISTRATION_H_
#define LOCKSTEP_BRIDGE_CORE_REGISTRATION_H_

// Who takes part: trainers take epochs (the newest is the only writable one, I5), samplers
// are compared with the newest trainer's contract, evidence and manifest, also after that
// trainer has left.

#include <string>

#include "absl/status/statusor.h"
#include "bridge/core/state.h"

namespace lockstep::core {

void HandleRegisterTrainer(Machine& m, const Session& session, const ReplyTo& reply,
                           const RegisterTrainer& message);
void HandleRegisterSampler(Machine& m, const Session& session, const ReplyTo& reply,
                           const RegisterSampler& message);

// Compares a connected sampler with the newest trainer: waits, agrees or refuses. `reply`
// with seq 0 is unsolicited. `sampler.contract` must be set.
void EvaluateSampler(Machine& m, Sampler& sampler, const ReplyTo& reply);

// The writing trainer's connection is gone.
void TrainerLost(Machine& m, const Session& session, const std::string& reason);

// An epoch as recorded; refusals when its contract or manifest cannot be used.
struct EpochReading {
  std::optional<Epoch> epoch;
  std::vector<Refusal> refusals;
};
EpochReading ReadEpoch(EpochRecord record);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_REGISTRATION_H_
