#include "bridge/core/core_testing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::core {
namespace {

constexpr uint64_t kTotal = 768;  // ComputeArenaLayout(ModelManifest()).total_bytes

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

template <typename T>
void Upsert(std::map<std::string, T>& map, const std::string& key, const T& value) {
  map[key] = value;
}

void AddCount(std::vector<ReasonCount>& counts, const std::string& reason) {
  for (ReasonCount& count : counts) {
    if (count.reason == reason) {
      ++count.count;
      return;
    }
  }
  counts.push_back({reason, 1});
}

}  // namespace

Manifest ModelManifest() {
  Manifest manifest;
  for (const char* name : {"a", "b", "c"}) {
    manifest.tensors.push_back({name, Dtype::kU8, {256}, TensorOrigin::kSynced});
  }
  return manifest;
}

Contract ModelContract(uint64_t tp) {
  Contract contract;
  contract.family = "none";
  contract.parallel.tp = tp;
  return contract;
}

VersionDigest DigestOf(uint64_t version, const Digest256& key, const Bytes& bytes) {
  VersionDigest digest;
  Blake2b256Hasher all;
  for (const uint64_t value : bytes) {
    Blake2b256Hasher hasher;
    hasher.Update(absl::MakeConstSpan(key));
    hasher.UpdateU64(version);
    hasher.UpdateU64(value);
    digest.tensor_roots.push_back(hasher.Finish());
    all.Update(absl::MakeConstSpan(digest.tensor_roots.back()));
  }
  digest.manifest_root = all.Finish();
  return digest;
}

std::vector<ComponentDigest> ComponentsOf(uint64_t probe_seed, const Bytes& bytes,
                                          const std::string& build) {
  std::vector<ComponentDigest> components;
  for (const char* name : {"layers.0.mlp", "head"}) {
    Blake2b256Hasher hasher;
    hasher.UpdateString(name);
    hasher.UpdateString(build);
    hasher.UpdateU64(probe_seed);
    for (const uint64_t value : bytes) hasher.UpdateU64(value);
    components.push_back({name, hasher.Finish()});
  }
  return components;
}

Incarnation IncarnationOf(uint64_t number) {
  Incarnation incarnation{};
  std::memcpy(incarnation.data(), &number, sizeof(number));
  return incarnation;
}

RecoveredState Recover(const std::vector<LedgerRecord>& records) {
  RecoveredState state;
  std::map<uint64_t, EpochRecord> epochs;
  std::map<uint64_t, VersionRecord> versions;
  std::map<std::string, SamplerRecord> samplers;
  std::map<std::string, DecisionRecord> decisions;
  for (const LedgerRecord& record : records) {
    std::visit(Overloaded{
                   [&](const EpochRecord& r) { epochs[r.epoch] = r; },
                   [&](const VersionRecord& r) { versions[r.version] = r; },
                   [&](const LiveRecord& r) { state.live_history.push_back(r); },
                   [&](const SamplerRecord& r) { Upsert(samplers, r.name, r); },
                   [&](const DecisionRecord& r) { Upsert(decisions, r.decision.rollout_id, r); },
                   [&](const RefusalRecord& r) {
                     AddCount(state.refusals, std::string(RefusalCodeName(r.code)));
                   },
                   [&](const EventRecord& r) { state.last_event_seq = r.event.seq; },
               },
               record);
  }
  for (auto& [number, epoch] : epochs) state.epochs.push_back(std::move(epoch));
  for (auto& [number, version] : versions) state.versions.push_back(std::move(version));
  for (auto& [name, sampler] : samplers) state.samplers.push_back(std::move(sampler));
  for (auto& [id, record] : decisions) {
    const Decision& decision = record.decision;
    if (decision.kind == DecisionKind::kPending) {
      state.pending.push_back({decision, *record.rollout});
    } else if (decision.kind == DecisionKind::kAdmit) {
      ++state.rollouts_admitted;
    } else {
      AddCount(state.rollouts_refused, std::string(RefusalCodeName(decision.reasons.front().code)));
    }
  }
  return state;
}

// ---------------------------------------------------------------- peers

ModelPeer::ModelPeer(World& world, PeerRole role, std::string name, uint64_t incarnation)
    : world(world), role(role), name(std::move(name)), incarnation(IncarnationOf(incarnation)) {}

void ModelPeer::Connect() {
  peer = world.NewPeerId();
  Request(Hello{role, name, world.config.run, "model"});
}

uint64_t ModelPeer::Request(Message body) {
  world.inputs.push_back(
      PeerMessage{peer, "", true, Envelope{incarnation, ++seq, 0, std::move(body)}, {}});
  return seq;
}

void ModelPeer::Tell(Message body) {
  world.inputs.push_back(
      PeerMessage{peer, "", true, Envelope{incarnation, 0, 0, std::move(body)}, {}});
}

void ModelPeer::Hear(const Envelope& envelope) {
  if (!alive) return;
  heard.push_back(envelope);
  if (std::holds_alternative<Welcome>(envelope.body)) OnWelcome();
  if (const Refused* refused = std::get_if<Refused>(&envelope.body)) {
    const RefusalCode code = refused->refusals.front().code;
    if (code == RefusalCode::kStaleIncarnation) turned_away = true;
    if (code == RefusalCode::kUnknownPeer && !refused->final) return Connect();
  }
  OnMessage(envelope);
}

void ModelTrainer::OnWelcome() {
  Request(RegisterTrainer{ContractToJson(contract), {}, ModelManifest(), SourceRole::kActor});
}

void ModelTrainer::Publish(uint64_t version, Bytes value) {
  publishing = version;
  bytes = std::move(value);
  outcome.reset();
  accepted_.reset();
  seal_seq_ = 0;
  offer_seq_ =
      Request(Offer{epoch, version, SourceRole::kActor, LayoutDigest(ModelManifest()), transport});
}

void ModelTrainer::Fill(const OfferAccepted& accepted) {
  accepted_ = accepted;
  if (!accepted.verify_only) {
    world.memory[accepted.arena_id] = bytes;
    if (transport == TransportKind::kTcp) {
      world.inputs.push_back(UploadMark{accepted.arena_id, kTotal / 2});
      world.inputs.push_back(UploadMark{accepted.arena_id, kTotal});
    } else {
      if (!accepted.reuse_arena) {
        world.inputs.push_back(ArenaArrived{accepted.arena_id, incarnation, kTotal});
      }
      Tell(TransferProgress{accepted.version, kTotal / 2});
      Tell(TransferProgress{accepted.version, kTotal});
    }
  }
  if (!hold_seal) Seal();
}

void ModelTrainer::Seal() {
  const OfferAccepted accepted = *accepted_;
  seal_seq_ = Request(SealVersion{accepted.version, accepted.arena_id,
                                  DigestOf(accepted.version, accepted.key, bytes),
                                  ComponentsOf(accepted.probe_seed, bytes), 0});
}

void ModelTrainer::OnMessage(const Envelope& envelope) {
  if (const Registered* registered = std::get_if<Registered>(&envelope.body)) {
    epoch = registered->epoch;
    if (publishing != 0) Publish(publishing, bytes);  // what a break left open
  } else if (const OfferAccepted* accepted = std::get_if<OfferAccepted>(&envelope.body)) {
    if (accepted->version == publishing) Fill(*accepted);
  } else if (const PublishOutcome* answer = std::get_if<PublishOutcome>(&envelope.body)) {
    outcome = *answer;
    if (publishing == answer->version) publishing = 0;
  } else if (std::holds_alternative<Refused>(envelope.body) && envelope.reply_to != 0) {
    const bool mine = envelope.reply_to == offer_seq_ || envelope.reply_to == seal_seq_;
    if (mine) publishing = 0;
  }
}

void ModelSampler::OnWelcome() {
  round_.reset();
  RegisterSampler message{ContractToJson(contract), {}, ModelManifest(), transports, {}};
  if (live_version.has_value()) message.live = LiveClaim{*live_version, cache_epoch, ticket};
  Request(std::move(message));
}

Bytes ModelSampler::Installed() const {
  Bytes bytes = round_->transport == TransportKind::kShm ? world.memory[round_->arena_id] : copy_;
  if (corrupt_) bytes[1] ^= 1;
  return bytes;
}

void ModelSampler::Release(uint64_t arena) {
  if (arena != 0 && arena != slot_arena) Tell(ReleaseArena{arena});
}

void ModelSampler::Progress(uint64_t bytes_ready) {
  if (stuck || sealed_ || bytes_ready < kTotal) return;
  sealed_ = true;
  copy_ = world.memory[round_->arena_id];
  corrupt_ = corrupt_installs > 0;
  if (corrupt_) --corrupt_installs;
  Request(Sealed{round_->round_id});
}

void ModelSampler::OnMessage(const Envelope& envelope) {
  if (const RoundStart* start = std::get_if<RoundStart>(&envelope.body)) {
    round_ = *start;
    sealed_ = false;
    Progress(start->bytes_ready);
  } else if (std::holds_alternative<Fence>(envelope.body)) {
    fenced = true;
    live_version.reset();
  } else if (std::holds_alternative<Unfence>(envelope.body)) {
    fenced = false;
  }
  if (!round_.has_value()) return;
  const uint64_t id = round_->round_id;
  if (const RoundProgress* progress = std::get_if<RoundProgress>(&envelope.body)) {
    if (progress->round_id == id) Progress(progress->bytes_ready);
  } else if (const RoundKey* key = std::get_if<RoundKey>(&envelope.body)) {
    if (key->round_id != id) return;
    const Bytes bytes = Installed();
    Request(Verified{id, DigestOf(round_->version, key->key, bytes),
                     ComponentsOf(key->probe_seed, bytes, other_kernel ? "other" : "")});
  } else if (const Activate* activate = std::get_if<Activate>(&envelope.body)) {
    if (activate->round_id != id) return;
    Request(Activated{id, ++flushes, no_receipt ? "" : "flushed"});
  } else if (const Live* live = std::get_if<Live>(&envelope.body)) {
    if (live->round_id != id) return;
    const uint64_t before = slot_arena;
    slot = Installed();
    slot_arena = round_->transport == TransportKind::kShm ? round_->arena_id : 0;
    live_version = live->version;
    cache_epoch = live->cache_epoch;
    ticket = live->ticket;
    round_.reset();
    Release(before);
  } else if (const RoundAbort* abort = std::get_if<RoundAbort>(&envelope.body)) {
    if (abort->round_id != id) return;
    const uint64_t arena = round_->transport == TransportKind::kShm ? round_->arena_id : 0;
    round_.reset();
    Release(arena);
  }
}

Rollout ModelSampler::MakeRollout(std::string id) const {
  Rollout rollout;
  rollout.id = std::move(id);
  rollout.content = Blake2b256(rollout.id);
  rollout.sampler = name;
  rollout.incarnation = incarnation;
  rollout.contract_id = ToHex(ContractId(contract));
  rollout.spans = {{live_version.value_or(0), 0, 2}};
  rollout.cache_epoch = cache_epoch;
  rollout.ticket = ticket;
  rollout.level = AdmissionLevel::kTokens;
  rollout.tokens = {5, 7};
  rollout.sampler_logprobs = {-0.5f, -1.25f};
  return rollout;
}

// ---------------------------------------------------------------- world

Config World::DefaultConfig() {
  Config config;
  config.run = "run";
  config.fd_socket_path = "fd.sock";
  config.bulk_address = "tcp://127.0.0.1:1";
  config.ticket_key = Blake2b256("ticket key");
  config.incarnation = IncarnationOf(0xB);
  return config;
}

World::World(Config configuration) : config(std::move(configuration)) { Start(); }

void World::Start() {
  core = std::make_unique<Core>(config, Recover(ledger));
  const Outputs outputs = core->Start(time);
  Commit(outputs);
  for (const Effect& effect : outputs.effects) Carry(effect);
}

template <typename Peer>
Peer& World::Add(const std::string& name) {
  auto peer = std::make_unique<Peer>(*this, name, NewIncarnation());
  Peer& added = *peer;
  peers.push_back(std::move(peer));
  return added;
}

ModelTrainer& World::AddTrainer(const std::string& name) {
  ModelTrainer& trainer = Add<ModelTrainer>(name);
  trainer.Connect();
  return trainer;
}

ModelSampler& World::AddSampler(const std::string& name) {
  ModelSampler& sampler = Add<ModelSampler>(name);
  sampler.Connect();
  return sampler;
}

ModelPeer& World::AddOperator(const std::string& name) {
  peers.push_back(std::make_unique<ModelPeer>(*this, PeerRole::kOperator, name, NewIncarnation()));
  peers.back()->Connect();
  return *peers.back();
}

ModelSampler& World::RestartSampler(ModelSampler& old) {
  old.alive = false;
  ModelSampler& sampler = Add<ModelSampler>(old.name);
  sampler.contract = old.contract;
  sampler.transports = old.transports;
  sampler.Connect();
  return sampler;
}

void World::Commit(const Outputs& outputs) {
  ledger.insert(ledger.end(), outputs.records.begin(), outputs.records.end());
}

Outputs World::RunCore(InputBody body) {
  Input input;
  const Digest256 entropy = Blake2b256(absl::StrCat("entropy ", ++entropy_, " ", config.boot));
  std::copy(entropy.begin(), entropy.end(), input.entropy.begin());
  input.body = std::move(body);
  return core->Step(input, time);
}

void World::Step(InputBody body) {
  const Outputs outputs = RunCore(std::move(body));
  Commit(outputs);
  for (const core::Send& send : outputs.sends) Send(send);
  for (const Effect& effect : outputs.effects) Carry(effect);
}

void World::Send(const core::Send& send) {
  for (size_t i = 0; i < peers.size(); ++i) {
    if (peers[i]->peer == send.peer) peers[i]->Hear(send.envelope);
  }
}

void World::Carry(const Effect& effect) {
  std::visit(
      Overloaded{
          [&](const DigestWork& work) {
            inputs.push_back(
                DigestDone{work.work_id, DigestOf(work.version, work.key, memory[work.arena_id])});
          },
          [&](const CompareWork& work) {
            inputs.push_back(
                CompareDone{work.work_id, memory[work.arena_a] == memory[work.arena_b]});
          },
          [&](const SpoolWork& work) {
            if (spool_error.empty()) spool[work.version] = memory[work.arena_id];
            inputs.push_back(SpoolDone{work.work_id, spool_error});
          },
          [&](const SpoolDrop& drop) { spool.erase(drop.version); },
          [&](const SpoolLoad& load) {
            const bool here = spool.contains(load.version);
            if (here) memory[load.arena_id] = spool[load.version];
            inputs.push_back(SpoolLoaded{load.version, load.arena_id, here ? "" : "no such file"});
          },
          [&](const Exit&) { exited = true; },
          [](const auto&) {},
      },
      effect);
}

void World::Settle() {
  while (!inputs.empty()) {
    InputBody body = std::move(inputs.front());
    inputs.pop_front();
    Step(std::move(body));
  }
}

void World::Advance(int64_t ms) {
  time.now_ms += ms;
  time.wall_ms += ms;
  Step(Tick{});
}

void World::CrashBridge() {
  inputs.clear();
  memory.clear();
  ++config.boot;
  config.incarnation = IncarnationOf(0xB00 + config.boot);
  Start();
  for (size_t i = 0; i < peers.size(); ++i) {
    if (peers[i]->alive) peers[i]->Connect();
  }
}

void World::Kill(ModelPeer& peer) {
  peer.alive = false;
  inputs.push_back(PeerGone{peer.peer, "killed"});
}

SamplerStatus World::StatusOf(const std::string& sampler) {
  for (const SamplerStatus& status : core->Status(time).samplers) {
    if (status.name == sampler) return status;
  }
  return {};
}

VersionStatus World::StatusOf(uint64_t version) {
  for (const VersionStatus& status : core->Status(time).versions) {
    if (status.version == version) return status;
  }
  return {};
}

uint64_t World::Events(const std::string& kind) const {
  return static_cast<uint64_t>(
      std::count_if(ledger.begin(), ledger.end(), [&](const LedgerRecord& record) {
        const EventRecord* event = std::get_if<EventRecord>(&record);
        return event != nullptr && event->event.kind == kind;
      }));
}

}  // namespace lockstep::core
