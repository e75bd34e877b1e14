#include "bridge/core/peers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/core/emit.h"
#include "bridge/core/registration.h"
#include "bridge/core/rounds.h"

namespace lockstep::core {
namespace {

std::string Subject(const Session& session) {
  return absl::StrCat(PeerRoleName(session.key.role), " ", session.name);
}

// Turned away before it has a session.
void TurnAway(Machine& m, PeerId peer, uint64_t seq, absl::string_view subject, Refusal why,
              bool final) {
  CountRefusal(m, subject, why);
  SendToPeer(m, peer, seq, Refused{{std::move(why)}, final});
}

// What an operator did must not happen twice when its connection breaks and it asks again;
// trainers and samplers start over by registering.
void DropRequestLog(Machine& m, const PeerKey& key) {
  if (key.role == PeerRole::kOperator) {
    RequestLog& log = m.requests[key];
    std::erase_if(log.answers, [](const auto& entry) {
      return !entry.second.has_value() || !std::holds_alternative<ActReply>(*entry.second);
    });
    if (!log.answers.empty()) {
      m.departed_operators.push_back(key);
      if (m.departed_operators.size() <= kMaxDepartedOperators) return;
      const PeerKey oldest = m.departed_operators.front();
      m.departed_operators.pop_front();
      if (!m.links.contains(oldest)) m.requests.erase(oldest);
      return;
    }
  }
  m.requests.erase(key);
}

void DropSession(Machine& m, PeerId peer, const std::string& reason) {
  const Session session = m.sessions.at(peer);
  m.timers.Cancel(TimerKind::kLease, peer);
  m.sessions.erase(peer);
  m.links.erase(session.key);
  DropRequestLog(m, session.key);
  const auto name = m.names.find({session.key.role, session.name});
  if (name != m.names.end() && name->second == session.key) m.names.erase(name);
  if (session.key.role == PeerRole::kTrainer) {
    TrainerLost(m, session, reason);
  } else if (session.key.role == PeerRole::kSampler) {
    Sampler* sampler = Find(m.samplers, session.name);
    const bool current =
        sampler != nullptr && sampler->connected && sampler->incarnation == session.key.incarnation;
    if (current) SamplerLost(m, *sampler, reason);
  }
}

std::deque<Incarnation>& StaleOf(Machine& m, PeerRole role, const std::string& name) {
  return m.stale_names[{role, name}];
}

bool IsStale(const Machine& m, const PeerKey& key, const std::string& name) {
  const auto* stale = Find(m.stale_names, std::make_pair(key.role, name));
  return stale != nullptr &&
         std::find(stale->begin(), stale->end(), key.incarnation) != stale->end();
}

void RememberStale(Machine& m, const PeerKey& key, const std::string& name) {
  std::deque<Incarnation>& stale = StaleOf(m, key.role, name);
  stale.push_back(key.incarnation);
  if (stale.size() > kMaxStaleIncarnations) stale.pop_front();
  m.stale_order.emplace_back(key.role, name);
  if (m.stale_order.size() <= kMaxSamplers) return;
  m.stale_names.erase(m.stale_order.front());
  m.stale_order.pop_front();
}

std::optional<Refusal> CheckHello(const Machine& m, const PeerMessage& message,
                                  const Hello& hello) {
  const std::string subject = absl::StrCat(PeerRoleName(hello.role), " ", hello.name);
  if (!hello.run.empty() && hello.run != m.config.run) {
    return Refusal{RefusalCode::kBadMessage, "run",
                   absl::StrCat("this bridge serves run '", m.config.run, "', the peer asks for '",
                                hello.run, "'; connect to that run's bridge")};
  }
  if (hello.name.empty() || hello.name.size() > kMaxPeerNameBytes) {
    return Refusal{RefusalCode::kBadMessage, "name",
                   absl::StrCat("a peer's name has 1 to ", kMaxPeerNameBytes, " bytes, this has ",
                                hello.name.size())};
  }
  const std::string expected = absl::StrCat(hello.name, ":", PeerRoleName(hello.role));
  if (!message.authenticated_name.empty() && message.authenticated_name != expected) {
    return Refusal{RefusalCode::kUnauthorised, subject,
                   absl::StrCat("the key belongs to '", message.authenticated_name,
                                "', the peer calls itself '", expected,
                                "'; use the name and role that the key was made for")};
  }
  if (m.sessions.size() >= kMaxPeers) {
    return Refusal{RefusalCode::kLimitExceeded, subject,
                   absl::StrCat(kMaxPeers, " peers are connected, which is the limit")};
  }
  return std::nullopt;
}

// The connection or process that held this name or incarnation gives way.
void Displace(Machine& m, const PeerMessage& message, const PeerKey& key, const Hello& hello) {
  if (const PeerId* link = Find(m.links, key)) {
    const PeerId old = *link;
    const std::optional<RequestLog> log =
        m.requests.contains(key) ? std::optional(m.requests.at(key)) : std::nullopt;
    DropSession(m, old, "the same process connected again");
    if (log.has_value()) m.requests[key] = *log;
    if (old != message.peer) Emit(m, ClosePeer{old});
  }
  if (hello.role == PeerRole::kOperator) return;
  const auto holder = m.names.find({hello.role, hello.name});
  if (holder == m.names.end()) return;
  const PeerKey old_key = holder->second;
  const PeerId old = m.links.at(old_key);
  const Refusal why{RefusalCode::kStaleIncarnation, hello.name,
                    absl::StrCat("another process took the name '", hello.name,
                                 "'; stop this one, or give it a name of its own")};
  CountRefusal(m, absl::StrCat(PeerRoleName(hello.role), " ", hello.name), why);
  SendToPeer(m, old, 0, Refused{{why}, /*final=*/true});
  RememberStale(m, old_key, hello.name);
  DropSession(m, old, "replaced by a newer process of the same name");
  Emit(m, ClosePeer{old});
}

void HandleHello(Machine& m, const PeerMessage& message, const Hello& hello) {
  const PeerKey key{hello.role, message.envelope.incarnation};
  const std::string subject = absl::StrCat(PeerRoleName(hello.role), " ", hello.name);
  std::optional<Refusal> refusal = CheckHello(m, message, hello);
  if (!refusal.has_value() && IsStale(m, key, hello.name)) {
    refusal = Refusal{RefusalCode::kStaleIncarnation, subject,
                      absl::StrCat("a newer process has taken the name '", hello.name,
                                   "'; start this one again to take over")};
  }
  if (refusal.has_value()) {
    TurnAway(m, message.peer, message.envelope.seq, subject, *std::move(refusal), true);
    return;
  }
  if (m.sessions.contains(message.peer)) {
    // Said twice on one connection: the first Hello stands.
    const Session& session = m.sessions.at(message.peer);
    if (session.key != key || session.name != hello.name) {
      Refuse(m, {session.key, message.envelope.seq}, Subject(session),
             Refusal{RefusalCode::kBadMessage, "hello",
                     "this connection has said Hello under another name or incarnation; open a "
                     "new connection"});
      return;
    }
  } else {
    Displace(m, message, key, hello);
    m.sessions[message.peer] =
        Session{message.peer, key, hello.name, message.same_host, m.time.now_ms};
    m.links[key] = message.peer;
    if (hello.role != PeerRole::kOperator) m.names[{hello.role, hello.name}] = key;
    m.timers.Set(TimerKind::kLease, message.peer, m.time.now_ms + m.config.lease_ms);
  }
  RequestLog& log = m.requests[key];
  log.highest_seq = std::max(log.highest_seq, message.envelope.seq);
  Welcome welcome;
  welcome.run = m.config.run;
  welcome.lease_ms = static_cast<uint64_t>(m.config.lease_ms);
  welcome.fd_socket_path = message.same_host ? m.config.fd_socket_path : "";
  welcome.bulk_address = m.config.bulk_address;
  welcome.bulk_key = m.config.bulk_key;
  welcome.newest_version = m.newest_sealed;
  SendToPeer(m, message.peer, message.envelope.seq, std::move(welcome));
}

// Requests whose repeat finds the same answer by itself, or that change nothing.
bool IsIdempotent(const Message& body) {
  return std::holds_alternative<Ping>(body) || std::holds_alternative<Pong>(body) ||
         std::holds_alternative<Goodbye>(body) || std::holds_alternative<SubmitRollout>(body) ||
         std::holds_alternative<SubmitRolloutFor>(body) ||
         std::holds_alternative<SubmitRescore>(body) ||
         std::holds_alternative<StatusRequest>(body) ||
         std::holds_alternative<EventsRequest>(body) ||
         std::holds_alternative<ExplainRequest>(body);
}

// False when the request has been seen: it is answered as before, or still being worked on.
bool FirstTime(Machine& m, const Session& session, const Envelope& envelope) {
  if (envelope.seq == 0) return true;
  RequestLog& log = m.requests[session.key];
  const bool older = envelope.seq <= log.highest_seq;
  log.highest_seq = std::max(log.highest_seq, envelope.seq);
  if (IsIdempotent(envelope.body)) return true;
  const auto seen = log.answers.find(envelope.seq);
  if (seen != log.answers.end()) {
    if (seen->second.has_value()) SendToPeer(m, session.peer, envelope.seq, *seen->second);
    return false;
  }
  if (older) {
    const Refusal why{RefusalCode::kBadMessage, absl::StrCat("request ", envelope.seq),
                      absl::StrCat("request ", envelope.seq, " came after request ",
                                   log.highest_seq, "; ask again under a new number")};
    CountRefusal(m, Subject(session), why);
    SendToPeer(m, session.peer, envelope.seq, Refused{{why}, /*final=*/false});
    return false;
  }
  log.answers[envelope.seq] = std::nullopt;
  if (log.answers.size() > kMaxCachedAnswers) log.answers.erase(log.answers.begin());
  return true;
}

}  // namespace

std::optional<Request> AdmitMessage(Machine& m, const PeerMessage& message) {
  const Envelope& envelope = message.envelope;
  if (const Hello* hello = std::get_if<Hello>(&envelope.body)) {
    HandleHello(m, message, *hello);
    return std::nullopt;
  }
  Session* session = Find(m.sessions, message.peer);
  if (session == nullptr) {
    if (std::holds_alternative<Goodbye>(envelope.body)) return std::nullopt;
    TurnAway(m, message.peer, envelope.seq, absl::StrCat("connection ", message.peer),
             {RefusalCode::kUnknownPeer, "hello",
              "this connection is not known (any more); say Hello and register again"},
             /*final=*/false);
    return std::nullopt;
  }
  if (envelope.incarnation != session->key.incarnation) {
    TurnAway(m, message.peer, envelope.seq, Subject(*session),
             {RefusalCode::kStaleIncarnation, session->name,
              "the message is of another incarnation than this connection's Hello"},
             /*final=*/true);
    return std::nullopt;
  }
  session->heard_ms = m.time.now_ms;
  const ReplyTo reply{session->key, envelope.seq};
  if (std::holds_alternative<Ping>(envelope.body)) {
    Answer(m, reply, Pong{});
    return std::nullopt;
  }
  if (std::holds_alternative<Goodbye>(envelope.body)) {
    DropSession(m, message.peer, "said goodbye");
    return std::nullopt;
  }
  if (!FirstTime(m, *session, envelope)) return std::nullopt;
  return Request{session, reply};
}

void HandlePeerGone(Machine& m, const PeerGone& gone) {
  if (m.sessions.contains(gone.peer)) DropSession(m, gone.peer, gone.reason);
}

void HandleMalformed(Machine& m, const MalformedMessage& malformed) {
  if (malformed.peer == 0) return CountRefusal(m, "unknown peers", malformed.refusal);
  const Session* session = Find(m.sessions, malformed.peer);
  const std::string subject =
      session != nullptr ? Subject(*session) : absl::StrCat("connection ", malformed.peer);
  TurnAway(m, malformed.peer, malformed.seq, subject, malformed.refusal, /*final=*/true);
  if (session != nullptr) DropSession(m, malformed.peer, malformed.refusal.message);
  Emit(m, ClosePeer{malformed.peer});
}

void LeaseTimer(Machine& m, PeerId peer) {
  const Session* session = Find(m.sessions, peer);
  if (session == nullptr) return;
  const int64_t lapses_ms = session->heard_ms + m.config.lease_ms;
  if (lapses_ms > m.time.now_ms) {
    m.timers.Set(TimerKind::kLease, peer, lapses_ms);
    return;
  }
  DropSession(m, peer, absl::StrCat("silent for ", m.time.now_ms - session->heard_ms, " ms"));
  Emit(m, ClosePeer{peer});
}

}  // namespace lockstep::core
