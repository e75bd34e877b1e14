#include "bridge/core/verification.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/emit.h"
#include "bridge/core/operators.h"
#include "bridge/core/outcomes.h"
#include "bridge/core/retention.h"
#include "bridge/core/rounds.h"

namespace lockstep::core {
namespace {

struct ComponentComparison {
  uint32_t equal = 0;
  std::optional<Refusal> first;  // difference
};

ComponentComparison CompareComponents(const std::vector<ComponentDigest>& trainer,
                                      const std::vector<ComponentDigest>& sampler) {
  std::map<absl::string_view, const Digest256*> reported;
  for (const ComponentDigest& component : sampler) reported[component.name] = &component.digest;
  ComponentComparison comparison;
  const auto differ = [&comparison](const std::string& name, std::string message) {
    if (comparison.first.has_value()) return;
    comparison.first = Refusal{RefusalCode::kKernelMismatch, name, std::move(message)};
  };
  for (const ComponentDigest& component : trainer) {
    const auto found = reported.find(component.name);
    if (found == reported.end()) {
      differ(component.name, absl::StrCat("the sampler ran no probe of '", component.name, "'"));
    } else if (*found->second != component.digest) {
      differ(component.name,
             absl::StrCat("the kernel probe of '", component.name,
                          "' gives other bytes on the sampler than on the trainer, over equal "
                          "weights; both must run the contract's program at this site"));
    } else {
      ++comparison.equal;
    }
  }
  if (sampler.size() != trainer.size()) {
    differ("components", absl::StrCat("the sampler reports ", sampler.size(),
                                      " probe components, the trainer ", trainer.size()));
  }
  return comparison;
}

void Mismatch(Machine& m, Sampler& sampler, const Refusal& why) {
  AbortRound(m, sampler, why);
  RetryOrQuarantine(m, sampler, sampler.mismatches, m.config.round_retries, why);
  Retain(m);
}

void SendReply(Machine& m, const Sampler& sampler, const ReplyTo& reply, Message body) {
  if (reply.seq != 0) {
    Answer(m, reply, std::move(body));
  } else {
    SendTo(m, SamplerKey(sampler), std::move(body));
  }
}

}  // namespace

std::vector<Refusal> CompareDigests(const Manifest& manifest, const VersionDigest& expected,
                                    const VersionDigest& reported) {
  if (expected == reported) return {};
  std::vector<Refusal> differences;
  if (reported.tensor_roots.size() != manifest.tensors.size()) {
    return {{RefusalCode::kDigestMismatch, "tensor_roots",
             absl::StrCat("the digest has ", reported.tensor_roots.size(), " tensor roots, the ",
                          "manifest ", manifest.tensors.size(), " tensors")}};
  }
  for (size_t i = 0; i < manifest.tensors.size() && differences.size() < kMaxNamedTensors; ++i) {
    if (expected.tensor_roots[i] == reported.tensor_roots[i]) continue;
    differences.push_back(
        {RefusalCode::kDigestMismatch, manifest.tensors[i].name,
         absl::StrCat("tensor '", manifest.tensors[i].name,
                      "' as installed is not the tensor that was published (root ",
                      ToHex(reported.tensor_roots[i]).substr(0, 16), ", the trainer's is ",
                      ToHex(expected.tensor_roots[i]).substr(0, 16), ")")});
  }
  if (differences.empty()) {
    differences.push_back({RefusalCode::kDigestMismatch, "manifest_root",
                           "every tensor root is equal but the manifest root differs; both "
                           "sides must hash tensors in manifest order"});
  }
  return differences;
}

void GiveKey(Machine& m, Sampler& sampler) {
  Round& round = *sampler.round;
  Version& version = m.versions.at(round.version);
  round.phase = RoundPhase::kVerifying;
  sampler.state = SamplerState::kVerifying;
  SetRoundDeadline(m, round);
  const bool first = version.key_given.insert(sampler.name).second;
  if (first && round.at_publish && !version.key_spent) {
    round.key = version.record.key;
    round.expected = version.record.digest;
  } else {
    round.key = NewKey(m, "round key");
    round.digest_work = NewWork(m, {WorkKind::kRound, round.version, 0, round.id});
    Emit(m, DigestWork{round.digest_work, round.arena, round.version, round.key, version.manifest});
    StartProof(m, version);
  }
  SendReply(m, sampler, round.last_request,
            RoundKey{round.id, round.key, version.record.probe_seed});
}

void HandleVerified(Machine& m, Sampler& sampler, const ReplyTo& reply, const Verified& message) {
  Round* round = CurrentRound(m, sampler, message.round_id, "Verified");
  if (round == nullptr) return;
  if (round->phase != RoundPhase::kVerifying || round->reported.has_value()) {
    if (round->phase == RoundPhase::kActivating || round->reported.has_value()) return;
    Refuse(m, reply, SamplerSubject(sampler.name),
           Refusal{RefusalCode::kBadMessage, VersionSubject(round->version),
                   "Verified came before the round's key; say Sealed and digest under RoundKey"},
           /*final=*/false);
    return;
  }
  round->last_request = reply;
  round->reported = message;
  CheckVerified(m, sampler);
}

void CheckVerified(Machine& m, Sampler& sampler) {
  if (!sampler.round.has_value() || sampler.round->phase != RoundPhase::kVerifying) return;
  Round& round = *sampler.round;
  Version& version = m.versions.at(round.version);
  if (!round.reported.has_value() || !round.expected.has_value()) return;
  if (round.digest_work != 0 && version.proof != CopyProof::kProven) return;

  const std::vector<Refusal> differences =
      CompareDigests(*version.manifest, *round.expected, round.reported->digest);
  if (!differences.empty()) {
    Refusal why = differences.front();
    if (differences.size() > 1) {
      for (size_t i = 1; i < differences.size(); ++i) {
        absl::StrAppend(&why.message, "; ", differences[i].message);
      }
    }
    Mismatch(m, sampler, why);
    return;
  }
  const ComponentComparison components =
      CompareComponents(version.record.components, round.reported->components);
  sampler.components_verified = components.equal;
  sampler.components_total = static_cast<uint32_t>(version.record.components.size());
  if (components.first.has_value()) {
    Mismatch(m, sampler, *components.first);
    return;
  }
  round.phase = RoundPhase::kActivating;
  sampler.state = SamplerState::kActivating;
  SetRoundDeadline(m, round);
  if (version.state == VersionStage::kSealed) {
    version.state = VersionStage::kVerified;
    RecordVersion(m, version);
  }
  RecordEvent(m, "verify", SamplerSubject(sampler.name),
              absl::StrCat("holds the bytes of version ", round.version, ", ", components.equal,
                           "/", sampler.components_total, " components equal"));
  SendReply(m, sampler, round.last_request, Activate{round.id});
}

void StartProof(Machine& m, Version& version) {
  if (version.proof != CopyProof::kUnknown) return;
  version.proof = CopyProof::kRunning;
  const uint64_t number = version.record.version;
  const uint64_t work = NewWork(m, {WorkKind::kProof, number, 0, 0});
  Emit(m, DigestWork{work, *version.arena, number, version.record.key, version.manifest});
}

void RoundDigestDone(Machine& m, const Work& work, const VersionDigest& digest) {
  const std::string* owner = Find(m.round_owner, work.round_id);
  if (owner != nullptr) {
    Sampler& sampler = m.samplers.at(*owner);
    sampler.round->expected = digest;
    CheckVerified(m, sampler);
  }
  Retain(m);
}

void ProofDigestDone(Machine& m, const Work& work, const VersionDigest& digest) {
  Version* version = Find(m.versions, work.version);
  if (version == nullptr) return;
  if (digest == version->record.digest) {
    version->proof = CopyProof::kProven;
    for (auto& [name, sampler] : m.samplers) {
      if (sampler.round.has_value() && sampler.round->version == work.version) {
        CheckVerified(m, sampler);
      }
    }
    ScheduleAll(m);
    MaybeFinishRollback(m);
  } else {
    version->proof = CopyProof::kBroken;
    const std::vector<Refusal> differences =
        CompareDigests(*version->manifest, version->record.digest, digest);
    const Refusal why{RefusalCode::kDigestMismatch, VersionSubject(work.version),
                      absl::StrCat("the bridge's own copy of version ", work.version,
                                   " is not what the trainer sealed (", differences.front().message,
                                   "); publish the version again")};
    RaiseAlarm(m, VersionSubject(work.version), why.message);
    AbortRoundsOf(m, work.version, why);
    if (version->publish.has_value()) {
      const std::set<std::string> waiting = version->publish->waiting;
      for (const std::string& name : waiting) {
        ReportOutcome(m, work.version, m.samplers.at(name), "failed", {why});
      }
    }
    MaybeFinishRollback(m);
  }
  Retain(m);
}

}  // namespace lockstep::core
