#include "bridge/core/core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/arenas.h"
#include "bridge/core/emit.h"
#include "bridge/core/operators.h"
#include "bridge/core/peers.h"
#include "bridge/core/publish.h"
#include "bridge/core/recovery.h"
#include "bridge/core/registration.h"
#include "bridge/core/retention.h"
#include "bridge/core/rollouts.h"
#include "bridge/core/rounds.h"
#include "bridge/core/state.h"
#include "bridge/core/status.h"
#include "bridge/core/verification.h"

namespace lockstep::core {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

std::string SubjectOf(const Session& session) {
  return absl::StrCat(PeerRoleName(session.key.role), " ", session.name);
}

// The registered sampler that speaks; others are told to register.
Sampler* SpeakingSampler(Machine& m, const Session& session, const ReplyTo& reply) {
  Sampler* sampler =
      session.key.role == PeerRole::kSampler ? Find(m.samplers, session.name) : nullptr;
  if (sampler != nullptr && sampler->connected && sampler->incarnation == session.key.incarnation) {
    return sampler;
  }
  Refuse(m, reply, SubjectOf(session),
         Refusal{RefusalCode::kUnknownPeer, session.name,
                 "only a registered sampler takes part in rounds; register first"},
         /*final=*/false);
  return nullptr;
}

// The role that a message belongs to; false (and refused) when the peer has another.
bool RequireRole(Machine& m, const Session& session, const ReplyTo& reply, PeerRole role,
                 absl::string_view verb) {
  if (session.key.role == role) return true;
  Refuse(m, reply, SubjectOf(session),
         Refusal{RefusalCode::kUnauthorised, std::string(verb),
                 absl::StrCat(verb, " is for a ", PeerRoleName(role), ", this peer is a ",
                              PeerRoleName(session.key.role))});
  return false;
}

ExplainReply ExplainByKind(const Machine& m, const ExplainRequest& request,
                           const std::optional<Decision>& stored, Time time) {
  switch (request.kind) {
    case ExplainKind::kVersion:
      return ExplainVersion(m, request.id, time);
    case ExplainKind::kSampler:
      return ExplainSampler(m, request.id, time);
    case ExplainKind::kRollout:
      return ExplainRollout(m, request.id, stored);
  }
  return {};
}

class Dispatcher {
 public:
  Dispatcher(Machine& m, const Request& request, const PeerMessage& message)
      : m_(m), session_(*request.session), reply_(request.reply), message_(message) {}

  void operator()(const RegisterTrainer& body) {
    if (RequireRole(m_, session_, reply_, PeerRole::kTrainer, "RegisterTrainer")) {
      HandleRegisterTrainer(m_, session_, reply_, body);
    }
  }
  void operator()(const RegisterSampler& body) {
    if (RequireRole(m_, session_, reply_, PeerRole::kSampler, "RegisterSampler")) {
      HandleRegisterSampler(m_, session_, reply_, body);
    }
  }
  void operator()(const Offer& body) {
    if (RequireRole(m_, session_, reply_, PeerRole::kTrainer, "Offer")) {
      HandleOffer(m_, session_, reply_, body);
    }
  }
  void operator()(const TransferProgress& body) { HandleTransferProgress(m_, session_, body); }
  void operator()(const SealVersion& body) {
    if (RequireRole(m_, session_, reply_, PeerRole::kTrainer, "SealVersion")) {
      HandleSealVersion(m_, session_, reply_, body);
    }
  }
  void operator()(const Sealed& body) {
    if (Sampler* s = SpeakingSampler(m_, session_, reply_)) HandleSealed(m_, *s, reply_, body);
  }
  void operator()(const Verified& body) {
    if (Sampler* s = SpeakingSampler(m_, session_, reply_)) HandleVerified(m_, *s, reply_, body);
  }
  void operator()(const Activated& body) {
    if (Sampler* s = SpeakingSampler(m_, session_, reply_)) HandleActivated(m_, *s, reply_, body);
  }
  void operator()(const RoundFailed& body) {
    if (Sampler* s = SpeakingSampler(m_, session_, reply_)) HandleRoundFailed(m_, *s, body);
  }
  void operator()(const ReleaseArena& body) {
    if (Sampler* s = SpeakingSampler(m_, session_, reply_)) HandleReleaseArena(m_, *s, body);
  }
  void operator()(const SubmitRollout& body) {
    HandleSubmitRollout(m_, session_, reply_, body, message_.prior);
  }
  void operator()(const SubmitRolloutFor& body) {
    HandleSubmitRolloutFor(m_, session_, reply_, body, message_.prior);
  }
  void operator()(const SubmitRescore& body) {
    HandleSubmitRescore(m_, session_, reply_, body, message_.prior);
  }
  void operator()(const OperatorAct& body) { HandleAct(m_, session_, reply_, body); }
  void operator()(const StatusRequest&) { Answer(m_, reply_, MakeStatus(m_, m_.time)); }
  void operator()(const ExplainRequest& body) {
    Answer(m_, reply_, ExplainByKind(m_, body, message_.prior, m_.time));
  }
  // Events live in the ledger: the loop answers, the core only renews the lease.
  void operator()(const EventsRequest&) {}
  // What the bridge says to others, or what AdmitMessage has handled.
  template <typename Other>
  void operator()(const Other&) {
    Refuse(m_, reply_, SubjectOf(session_),
           Refusal{RefusalCode::kBadMessage, "message",
                   "this message is the bridge's to send, not to receive"});
  }

 private:
  Machine& m_;
  const Session session_;  // a copy: handlers may end the session
  const ReplyTo reply_;
  const PeerMessage& message_;
};

void HandleMessage(Machine& m, const PeerMessage& message) {
  const std::optional<Request> request = AdmitMessage(m, message);
  if (!request.has_value()) return;
  std::visit(Dispatcher(m, *request, message), message.envelope.body);
}

void HandleDigestDone(Machine& m, const DigestDone& done) {
  const auto found = m.works.find(done.work_id);
  if (found == m.works.end()) return;
  const Work work = found->second;
  m.works.erase(found);
  switch (work.kind) {
    case WorkKind::kProof:
      return ProofDigestDone(m, work, done.digest);
    case WorkKind::kRound:
      return RoundDigestDone(m, work, done.digest);
    case WorkKind::kRollback:
      return RollbackDigestDone(m, work, done.digest);
    case WorkKind::kSpool:
    case WorkKind::kCompare:
      return;
  }
}

template <typename Then>
void FinishWork(Machine& m, uint64_t work_id, WorkKind kind, Then then) {
  const auto found = m.works.find(work_id);
  if (found == m.works.end() || found->second.kind != kind) return;
  const Work work = found->second;
  m.works.erase(found);
  then(work);
}

void HandleBytesSent(Machine& m, const BytesSent& sent) {
  const std::string* name = Find(m.sampler_names, sent.incarnation);
  if (name != nullptr) m.samplers.at(*name).bytes_sent += sent.bytes;
}

// Only a Tick expires deadlines, so a message that arrived in time is never judged late
// because the bridge itself was stopped for a while.
void RunTimers(Machine& m) {
  while (const std::optional<Timers::Due> due = m.timers.PopDue(m.time.now_ms)) {
    switch (due->kind) {
      case TimerKind::kLease:
        LeaseTimer(m, due->id);
        break;
      case TimerKind::kRound:
        RoundTimedOut(m, due->id);
        break;
      case TimerKind::kRescore:
        RescoreTimedOut(m, due->id);
        break;
      case TimerKind::kRolloutEvents:
        ReportRollouts(m);
        break;
      case TimerKind::kDrain:
        DrainTimedOut(m);
        break;
    }
  }
}

}  // namespace

struct Core::State {
  Machine machine;
};

Core::Core(Config config, RecoveredState recovered)
    : state_(
          std::make_unique<State>(State{BuildMachine(std::move(config), std::move(recovered))})) {}

Core::~Core() = default;

Outputs Core::Start(Time time) {
  Machine& m = state_->machine;
  Outputs outputs;
  m.time = time;
  m.out = &outputs;
  StartMachine(m);
  m.out = nullptr;
  return outputs;
}

Outputs Core::Step(const Input& input, Time time) {
  Machine& m = state_->machine;
  Outputs outputs;
  m.time = time;
  m.entropy = input.entropy;
  m.derived = 0;
  m.out = &outputs;
  std::visit(Overloaded{
                 [&m](const PeerMessage& body) { HandleMessage(m, body); },
                 [&m](const PeerGone& body) { HandlePeerGone(m, body); },
                 [&m](const MalformedMessage& body) { HandleMalformed(m, body); },
                 [&m](const ArenaArrived& body) { HandleArenaArrived(m, body); },
                 [&m](const ArenaFailed& body) { HandleArenaFailed(m, body); },
                 [&m](const UploadMark& body) { HandleUploadMark(m, body); },
                 [&m](const BytesSent& body) { HandleBytesSent(m, body); },
                 [&m](const DigestDone& body) { HandleDigestDone(m, body); },
                 [&m](const CompareDone& body) {
                   FinishWork(m, body.work_id, WorkKind::kCompare,
                              [&](const Work& work) { CompareFinished(m, work, body.equal); });
                 },
                 [&m](const SpoolDone& body) {
                   FinishWork(m, body.work_id, WorkKind::kSpool,
                              [&](const Work& work) { SpoolFinished(m, work, body.error); });
                 },
                 [&m](const SpoolLoaded& body) { HandleSpoolLoaded(m, body); },
                 [&m](const Tick&) { RunTimers(m); },
                 [&m](const Drain&) { BeginDrain(m, "SIGTERM"); },
             },
             input.body);
  ReapArenas(m);
  MaybeExit(m);
  m.out = nullptr;
  return outputs;
}

int64_t Core::NextDeadlineMs() const { return state_->machine.timers.NextMs(); }

StatusReply Core::Status(Time time) const { return MakeStatus(state_->machine, time); }

ExplainReply Core::Explain(const ExplainRequest& request, const std::optional<Decision>& stored,
                           Time time) const {
  return ExplainByKind(state_->machine, request, stored, time);
}

}  // namespace lockstep::core
