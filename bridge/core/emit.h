#ifndef LOCKSTEP_BRIDGE_CORE_EMIT_H_
#define LOCKSTEP_BRIDGE_CORE_EMIT_H_

// The only writers of a step's Outputs: answers, records, events, refusals, fresh keys.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "bridge/core/state.h"

namespace lockstep::core {

// Unsolicited: reply_to 0. Nothing happens when `key` has no connection.
void SendTo(Machine& m, const PeerKey& key, Message body);

// To a connection that has not said Hello (or was turned away).
void SendToPeer(Machine& m, PeerId peer, uint64_t reply_to, Message body);

// Answers a request, and remembers the answer for a repeat of it (I7).
void Answer(Machine& m, const ReplyTo& to, Message body);

// Answers with Refused, counts it and records an event (I6).
void Refuse(Machine& m, const ReplyTo& to, absl::string_view subject, std::vector<Refusal> refusals,
            bool final = true);
void Refuse(Machine& m, const ReplyTo& to, absl::string_view subject, Refusal refusal,
            bool final = true);

// Counts a refusal that has no answer of its own (a fence, an abort).
void CountRefusal(Machine& m, absl::string_view subject, const Refusal& refusal);

// `kind` is a verb of the protocol; `text` one sentence.
void RecordEvent(Machine& m, absl::string_view kind, std::string subject, std::string text);

void Emit(Machine& m, Effect effect);
void Record(Machine& m, LedgerRecord record);
void RecordVersion(Machine& m, const Version& version);
void RecordSampler(Machine& m, const Sampler& sampler);

// Each call of a step gives another key.
Digest256 NewKey(Machine& m, absl::string_view purpose);
uint64_t NewSeed(Machine& m, absl::string_view purpose);

uint64_t NewWork(Machine& m, Work work);

void RaiseAlarm(Machine& m, const std::string& subject, std::string sentence);
void ClearAlarm(Machine& m, const std::string& subject);

inline PeerKey SamplerKey(const Sampler& sampler) {
  return {PeerRole::kSampler, sampler.incarnation};
}

absl::string_view PeerRoleName(PeerRole role);
absl::string_view SourceRoleName(SourceRole role);
absl::string_view TransportName(TransportKind kind);

// "version 3", "sampler 's1'", as events and refusals name them.
std::string VersionSubject(uint64_t version);
std::string SamplerSubject(const std::string& name);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_EMIT_H_
