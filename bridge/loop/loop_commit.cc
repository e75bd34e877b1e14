// What the core said: records first, then sends, then effects.

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/loop/loop.h"
#include "bridge/wire/wire.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

// More events than a person or a poll reads at once; the asker goes on from the last one.
constexpr uint32_t kMaxEventsPerReply = 10'000;

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

LogLevel LevelOf(const Event& event) {
  return event.kind == "alarm" || event.kind == "refuse" ? LogLevel::kWarning : LogLevel::kInfo;
}

// Trainer and samplers digest at the same time, on one machine often.
int DigestThreads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
}

}  // namespace

absl::Status Loop::Commit() {
  if (absl::Status status = ledger_->Append(batch_.outputs.records); !status.ok()) {
    log_.Write(LogLevel::kError, "ledger",
               {{"text", absl::StrCat(status.message(),
                                      "; nothing more is acknowledged, the bridge ends")}});
    return status;
  }
  LogEvents();
  const Batch batch = std::exchange(batch_, {});
  for (const core::Send& send : batch.outputs.sends) Send(send.peer, send.envelope);
  for (const EventsWanted& wanted : batch.events) LOCKSTEP_RETURN_IF_ERROR(AnswerEvents(wanted));
  for (const core::Effect& effect : batch.outputs.effects) Carry(effect);
  for (const core::PeerId peer : batch.leaving) peers_.Forget(peer);
  return absl::OkStatus();
}

void Loop::LogEvents() const {
  for (const core::LedgerRecord& record : batch_.outputs.records) {
    const auto* recorded = std::get_if<core::EventRecord>(&record);
    if (recorded == nullptr) continue;
    const Event& event = recorded->event;
    log_.Write(LevelOf(event), event.kind, {{"subject", event.subject}, {"text", event.text}});
  }
}

void Loop::Send(core::PeerId peer, const Envelope& envelope) {
  const PeerLink* link = peers_.Find(peer);
  if (link == nullptr) return;  // turned away or left in this batch
  if (std::holds_alternative<Welcome>(envelope.body)) peers_.Welcomed(peer);
  const absl::Status sent = control_->Send(link->routing_id, wire::Encode(envelope));
  if (sent.ok()) return;
  const bool full = absl::IsUnavailable(sent);
  const std::string reason =
      full ? absl::StrCat("does not read: ", ControlSocket::kSendHighWaterMark,
                          " messages wait for it")
           : absl::StrCat("its connection is gone (", sent.message(), ")");
  log_.Write(LogLevel::kDebug, "unreachable", {{"peer", absl::StrCat(peer)}, {"text", reason}});
  follow_ups_.push_back(core::PeerGone{peer, reason});
  peers_.Forget(peer);
}

absl::Status Loop::AnswerEvents(const EventsWanted& wanted) {
  const uint32_t limit = std::min(wanted.request.limit, kMaxEventsPerReply);
  LOCKSTEP_ASSIGN_OR_RETURN(EventsReply reply, ledger_->Events(wanted.request.after_seq, limit));
  Send(wanted.peer, Envelope{options_.config.incarnation, 0, wanted.reply_to, std::move(reply)});
  return absl::OkStatus();
}

void Loop::Carry(const core::Effect& effect) {
  std::visit(
      Overloaded{
          [this](const core::ClosePeer& e) { peers_.Forget(e.peer); },
          [this](const core::Grant& e) { store_.Grant(e.incarnation, e.arena_id, e.write); },
          [this](const core::Revoke& e) { store_.Revoke(e.incarnation, e.arena_id); },
          [this](const core::ServeMark& e) { store_.SetServeMark(e.arena_id, e.bytes_ready); },
          [this](const core::CreateArena& e) { Create(e); },
          [this](const core::CloseArena& e) { Close(e.arena_id); },
          [this](const core::Exit&) { done_ = true; },
          [this](const auto& work) { Start(work); },
      },
      effect);
}

void Loop::Create(const core::CreateArena& create) {
  const absl::Status created = store_.Create(create.arena_id, create.bytes);
  if (created.ok()) return;
  follow_ups_.push_back(core::ArenaFailed{create.arena_id, std::string(created.message())});
}

void Loop::Close(uint64_t arena_id) {
  SharedArena arena = store_.Find(arena_id);
  store_.Close(arena_id);
  if (arena == nullptr) return;
  unmapping_->Do([arena = std::move(arena)]() -> std::optional<core::InputBody> { return {}; });
}

void Loop::Start(const core::DigestWork& work) {
  digests_->Do([run = options_.config.run, work, arena = store_.Find(work.arena_id)]() {
    return std::optional<core::InputBody>(Digest(run, work, arena, DigestThreads()));
  });
}

void Loop::Start(const core::CompareWork& work) {
  digests_->Do([work, a = store_.Find(work.arena_a), b = store_.Find(work.arena_b)]() {
    return std::optional<core::InputBody>(Compare(work, a, b));
  });
}

void Loop::Start(const core::SpoolWork& work) {
  disk_->Do([this, work, arena = store_.Find(work.arena_id)]() {
    return std::optional<core::InputBody>(WriteSpool(spool_, work, arena));
  });
}

void Loop::Start(const core::SpoolDrop& drop) {
  disk_->Do([this, drop]() -> std::optional<core::InputBody> {
    if (absl::Status dropped = spool_.Drop(drop.version); !dropped.ok()) {
      log_.Write(LogLevel::kWarning, "spool", {{"text", dropped.message()}});
    }
    return std::nullopt;
  });
}

void Loop::Start(const core::SpoolLoad& load) {
  if (absl::Status created = store_.Create(load.arena_id, load.bytes); !created.ok()) {
    follow_ups_.push_back(
        core::SpoolLoaded{load.version, load.arena_id, std::string(created.message())});
    return;
  }
  disk_->Do([this, load, arena = store_.Find(load.arena_id)]() {
    return std::optional<core::InputBody>(LoadSpool(spool_, load, arena));
  });
}

}  // namespace lockstep::loop
