#include "bridge/core/emit.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace lockstep::core {
namespace {

// Answers that a repeat can produce again by itself need no memory here: rollouts are
// idempotent by id, the rest changes nothing.
bool NeedsMemory(const Message& body) {
  return !std::holds_alternative<DecisionReply>(body) && !std::holds_alternative<Pong>(body);
}

Incarnation SenderOf(const Machine& m) { return m.config.incarnation; }

}  // namespace

void SendToPeer(Machine& m, PeerId peer, uint64_t reply_to, Message body) {
  m.out->sends.push_back({peer, Envelope{SenderOf(m), 0, reply_to, std::move(body)}});
}

void SendTo(Machine& m, const PeerKey& key, Message body) {
  const PeerId* peer = Find(m.links, key);
  if (peer != nullptr) SendToPeer(m, *peer, 0, std::move(body));
}

void Answer(Machine& m, const ReplyTo& to, Message body) {
  if (to.seq != 0 && NeedsMemory(body)) {
    RequestLog* log = Find(m.requests, to.key);
    if (log != nullptr) {
      const auto entry = log->answers.find(to.seq);
      if (entry != log->answers.end()) entry->second = body;
    }
  }
  const PeerId* peer = Find(m.links, to.key);
  if (peer != nullptr) SendToPeer(m, *peer, to.seq, std::move(body));
}

void Refuse(Machine& m, const ReplyTo& to, absl::string_view subject, std::vector<Refusal> refusals,
            bool final) {
  if (!refusals.empty()) CountRefusal(m, subject, refusals.front());
  Answer(m, to, Refused{std::move(refusals), final});
}

void Refuse(Machine& m, const ReplyTo& to, absl::string_view subject, Refusal refusal, bool final) {
  Refuse(m, to, subject, std::vector<Refusal>{std::move(refusal)}, final);
}

void CountRefusal(Machine& m, absl::string_view subject, const Refusal& refusal) {
  ++m.refusals[std::string(RefusalCodeName(refusal.code))];
  Record(m, RefusalRecord{refusal.code});
  RecordEvent(m, "refuse", std::string(subject),
              absl::StrCat(RefusalCodeName(refusal.code), ": ", refusal.message));
}

void RecordEvent(Machine& m, absl::string_view kind, std::string subject, std::string text) {
  Event event;
  event.seq = ++m.event_seq;
  event.wall_ms = static_cast<uint64_t>(m.time.wall_ms);
  event.kind = std::string(kind);
  event.subject = std::move(subject);
  event.text = std::move(text);
  Record(m, EventRecord{std::move(event)});
}

void Emit(Machine& m, Effect effect) { m.out->effects.push_back(std::move(effect)); }

void Record(Machine& m, LedgerRecord record) { m.out->records.push_back(std::move(record)); }

void RecordVersion(Machine& m, const Version& version) {
  VersionRecord record = version.record;
  record.state = std::string(VersionStageName(version.state));
  Record(m, std::move(record));
}

void RecordSampler(Machine& m, const Sampler& sampler) {
  Record(m, SamplerRecord{sampler.name, sampler.incarnation,
                          std::string(SamplerStateName(sampler.state)), sampler.reasons,
                          sampler.contract_json, sampler.transport});
}

Digest256 NewKey(Machine& m, absl::string_view purpose) {
  return Blake2b256Keyed(m.entropy, absl::StrCat("lockstep core ", purpose, "\n", ++m.derived));
}

uint64_t NewSeed(Machine& m, absl::string_view purpose) {
  const Digest256 key = NewKey(m, purpose);
  uint64_t seed = 0;
  std::memcpy(&seed, key.data(), sizeof(seed));
  return seed;
}

uint64_t NewWork(Machine& m, Work work) {
  const uint64_t id = m.next_work++;
  m.works.emplace(id, work);
  return id;
}

void RaiseAlarm(Machine& m, const std::string& subject, std::string sentence) {
  RecordEvent(m, "alarm", subject, sentence);
  m.alarms[subject] = std::move(sentence);
}

void ClearAlarm(Machine& m, const std::string& subject) { m.alarms.erase(subject); }

absl::string_view PeerRoleName(PeerRole role) {
  switch (role) {
    case PeerRole::kTrainer:
      return "trainer";
    case PeerRole::kSampler:
      return "sampler";
    case PeerRole::kOperator:
      return "operator";
  }
  return "unknown";
}

absl::string_view SourceRoleName(SourceRole role) {
  switch (role) {
    case SourceRole::kActor:
      return "actor";
    case SourceRole::kReference:
      return "reference";
    case SourceRole::kCritic:
      return "critic";
    case SourceRole::kDraft:
      return "draft";
  }
  return "unknown";
}

absl::string_view TransportName(TransportKind kind) {
  return kind == TransportKind::kShm ? "shm" : "tcp";
}

std::string VersionSubject(uint64_t version) { return absl::StrCat("version ", version); }

std::string SamplerSubject(const std::string& name) { return absl::StrCat("sampler ", name); }

}  // namespace lockstep::core
