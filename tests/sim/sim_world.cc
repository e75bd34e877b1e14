#include "tests/sim/sim_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::core {
namespace {

constexpr int kSamplers = 3;
constexpr int64_t kLeaseMs = 2'000;

Config SimConfig() {
  Config config = World::DefaultConfig();
  config.lease_ms = kLeaseMs;
  config.round_timeout_base_ms = 3'000;
  config.rescore_timeout_ms = 10'000;
  config.max_lag = 1;
  return config;
}

}  // namespace

SimWorld::SimWorld(uint64_t seed) : World(SimConfig()), engine_(seed) {
  trainer_ = &AddTrainer("t");
  for (int i = 0; i < kSamplers; ++i) {
    ModelSampler& sampler = AddSampler(absl::StrCat("s", i));
    if (Chance(3)) sampler.transports = {TransportKind::kTcp};
  }
  operator_ = &AddOperator("cli");
}

std::vector<ModelSampler*> SimWorld::AliveSamplers() {
  std::vector<ModelSampler*> alive;
  for (const auto& peer : peers) {
    ModelSampler* sampler = dynamic_cast<ModelSampler*>(peer.get());
    if (sampler != nullptr && sampler->alive && !sampler->turned_away) alive.push_back(sampler);
  }
  return alive;
}

void SimWorld::Send(const core::Send& send) {
  invariants_.OnSend(send);
  to_peer_[send.peer].push_back(send.envelope);
}

void SimWorld::Carry(const Effect& effect) {
  invariants_.OnEffect(effect);
  if (const ClosePeer* close = std::get_if<ClosePeer>(&effect)) {
    to_bridge_.erase(close->peer);
    return;
  }
  works_.push_back(effect);
}

void SimWorld::Step(InputBody body) {
  const Outputs outputs = RunCore(std::move(body));
  const int crash = std::exchange(crash_in_, 0);
  if (crash == 1) return Crash();
  Commit(outputs);
  for (const LedgerRecord& record : outputs.records) invariants_.OnRecord(record);
  if (crash == 2) return Crash();
  for (const core::Send& send : outputs.sends) Send(send);
  for (const Effect& effect : outputs.effects) Carry(effect);
  invariants_.OnWorld(*this);
}

void SimWorld::Collect() {
  while (!inputs.empty()) {
    InputBody body = std::move(inputs.front());
    inputs.pop_front();
    if (const PeerMessage* message = std::get_if<PeerMessage>(&body)) {
      if (cut_.contains(message->peer)) continue;
      to_bridge_[message->peer].push_back(std::move(body));
    } else if (const UploadMark* mark = std::get_if<UploadMark>(&body)) {
      uploads_[mark->arena_id].push_back(std::move(body));
    } else if (const ArenaArrived* arrived = std::get_if<ArenaArrived>(&body)) {
      uploads_[arrived->arena_id].push_back(std::move(body));
    } else {
      Step(std::move(body));
    }
  }
}

template <typename Map>
auto PickQueue(Map& queues, uint64_t random) {
  std::erase_if(queues, [](const auto& entry) { return entry.second.empty(); });
  auto it = queues.begin();
  if (!queues.empty()) std::advance(it, random % queues.size());
  return it;
}

bool SimWorld::DeliverOne() {
  Collect();
  const uint64_t first = Random(4);
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t which = (first + i) % 4;
    if (which == 0) {
      const auto queue = PickQueue(to_bridge_, engine_());
      if (queue == to_bridge_.end()) continue;
      InputBody body = std::move(queue->second.front());
      queue->second.pop_front();
      PeerMessage& message = std::get<PeerMessage>(body);
      if (const SubmitRollout* submit = std::get_if<SubmitRollout>(&message.envelope.body)) {
        for (auto it = ledger.rbegin(); it != ledger.rend(); ++it) {
          const DecisionRecord* record = std::get_if<DecisionRecord>(&*it);
          if (record == nullptr || record->decision.rollout_id != submit->rollout.id) continue;
          message.prior = record->decision;
          break;
        }
      }
      // The network may deliver twice; numbered requests must not mind.
      const bool twice = message.envelope.seq != 0 && Chance(8);
      if (twice) Step(body);
      Step(std::move(body));
      return true;
    }
    if (which == 1) {
      const auto queue = PickQueue(to_peer_, engine_());
      if (queue == to_peer_.end()) continue;
      const PeerId peer = queue->first;
      const Envelope envelope = std::move(queue->second.front());
      queue->second.pop_front();
      if (cut_.contains(peer)) return true;
      for (size_t p = 0; p < peers.size(); ++p) {
        if (peers[p]->peer != peer || !peers[p]->alive) continue;
        peers[p]->Hear(envelope);
        const Live* live = std::get_if<Live>(&envelope.body);
        ModelSampler* sampler = dynamic_cast<ModelSampler*>(peers[p].get());
        if (live != nullptr && sampler != nullptr && sampler->live_version == live->version &&
            sampler->cache_epoch == live->cache_epoch) {
          invariants_.OnServed(sampler->incarnation, live->version, sampler->slot);
        }
      }
      return true;
    }
    if (which == 2) {
      const auto queue = PickQueue(uploads_, engine_());
      if (queue == uploads_.end()) continue;
      InputBody body = std::move(queue->second.front());
      queue->second.pop_front();
      Step(std::move(body));
      return true;
    }
    if (works_.empty()) continue;
    const uint64_t at = Random(works_.size());
    const Effect work = works_[at];
    works_.erase(works_.begin() + static_cast<std::ptrdiff_t>(at));
    const size_t before = inputs.size();
    World::Carry(work);
    if (inputs.size() > before) {
      InputBody body = std::move(inputs.back());
      inputs.pop_back();
      Step(std::move(body));
    }
    return true;
  }
  return false;
}

void SimWorld::PassTime(int64_t ms) {
  for (const auto& peer : peers) {
    if (peer->alive && !peer->turned_away) peer->Request(Ping{});
  }
  time.now_ms += ms;
  time.wall_ms += ms;
  Collect();
  if (core->NextDeadlineMs() <= time.now_ms) Step(Tick{});
}

ModelSampler& SimWorld::RandomSampler() {
  const std::vector<ModelSampler*> alive = AliveSamplers();
  return *alive[Random(alive.size())];
}

Bytes SimWorld::RandomBytes() { return {Random(1'000), Random(1'000), Random(1'000)}; }

void SimWorld::SubmitSomething() {
  ModelSampler& sampler = RandomSampler();
  if (!submitted_.empty() && Chance(4)) {
    auto it = submitted_.begin();
    std::advance(it, Random(submitted_.size()));
    if (it->second.incarnation == sampler.incarnation) {
      Rollout again = it->second;
      if (Chance(4)) again.content[0] ^= 1;
      sampler.Request(SubmitRollout{again});
      return;
    }
  }
  if (!sampler.live_version.has_value()) return;
  Rollout rollout = sampler.MakeRollout(absl::StrCat("r", ++rollouts_));
  if (Chance(2)) rollout.level = AdmissionLevel::kWeights;
  submitted_[rollout.id] = rollout;
  sampler.Request(SubmitRollout{rollout});
}

void SimWorld::Act() {
  switch (Random(8)) {
    case 0:
    case 1:
      if (trainer_->epoch != 0 && trainer_->publishing == 0) {
        for (const VersionStatus& version : core->Status(time).versions) {
          last_version_ = std::max(last_version_, version.version);
        }
        trainer_->transport = Chance(3) ? TransportKind::kTcp : TransportKind::kShm;
        trainer_->Publish(++last_version_, Chance(10) ? trainer_->bytes : RandomBytes());
      }
      return;
    case 2:
    case 3:
    case 4:
      return SubmitSomething();
    case 5: {
      if (submitted_.empty()) return;
      auto it = submitted_.begin();
      std::advance(it, Random(submitted_.size()));
      std::vector<float> logprobs = it->second.sampler_logprobs;
      if (Chance(4)) logprobs[0] = -0.75f;
      trainer_->Request(SubmitRescore{it->first, logprobs});
      return;
    }
    case 6:
      for (const SamplerStatus& sampler : core->Status(time).samplers) {
        if (sampler.state != "quarantined") continue;
        operator_->Request(OperatorAct{OperatorAction::kQuarantineRelease, sampler.name});
      }
      return;
    default:
      if (Chance(4)) operator_->Request(OperatorAct{OperatorAction::kRollback, ""});
  }
}

void SimWorld::Break(ModelPeer& peer, bool noticed) {
  to_peer_.erase(peer.peer);
  if (noticed) {
    to_bridge_.erase(peer.peer);
    inputs.push_back(PeerGone{peer.peer, "the connection broke"});
  } else {
    cut_[peer.peer] = true;  // until the lease lapses on one side and a new one is made
  }
}

void SimWorld::RestartTrainer() {
  trainer_->alive = false;
  Break(*trainer_, Chance(2));
  trainer_ = &AddTrainer(Chance(4) ? "t2" : "t");
}

void SimWorld::Crash() {
  to_bridge_.clear();
  to_peer_.clear();
  uploads_.clear();
  works_.clear();
  cut_.clear();
  CrashBridge();
  invariants_.OnRestart(*this);
}

void SimWorld::Fault() {
  switch (Random(8)) {
    case 0: {
      ModelSampler& sampler = RandomSampler();
      Break(sampler, Chance(2));
      RestartSampler(sampler);
      return;
    }
    case 1: {
      ModelSampler& sampler = RandomSampler();
      Break(sampler, Chance(2));
      if (Chance(3)) sampler.ticket[0] ^= 1;  // a forged claim
      sampler.Connect();
      return;
    }
    case 2:
      return RestartTrainer();
    case 3:
      Break(*trainer_, Chance(2));
      trainer_->Connect();
      return;
    case 4:
      crash_in_ = 1 + static_cast<int>(Random(2));
      return;
    case 5:
      RandomSampler().corrupt_installs = 1 + static_cast<uint32_t>(Random(4));
      return;
    case 6:
      RandomSampler().stuck = true;
      return;
    default:
      spool_error = Chance(2) ? "no space left on device" : "";
      return;
  }
}

void SimWorld::RunChaos(int events) {
  for (int i = 0; i < events && breach().empty(); ++i) {
    const uint64_t dice = Random(100);
    if (dice < 2) {
      Fault();
    } else if (dice < 12) {
      Act();
    } else if (dice < 16) {
      PassTime(static_cast<int64_t>(Random(400)));
    } else {
      DeliverOne();
    }
    if (Chance(50)) RandomSampler().stuck = false;
  }
}

void SimWorld::Converge() {
  crash_in_ = 0;
  spool_error.clear();
  for (ModelSampler* sampler : AliveSamplers()) {
    sampler->stuck = false;
    sampler->corrupt_installs = 0;
  }
  const auto quiesce = [this](int rounds) {
    for (int i = 0; i < rounds && breach().empty(); ++i) {
      while (DeliverOne() && breach().empty()) {
      }
      PassTime(500);
    }
  };
  quiesce(20);
  if (!trainer_->alive || trainer_->turned_away || trainer_->epoch == 0) RestartTrainer();
  for (const auto& peer : peers) {
    if (peer->alive && !peer->turned_away) peer->Connect();
  }
  quiesce(20);
  for (const SamplerStatus& sampler : core->Status(time).samplers) {
    if (sampler.state != "quarantined") continue;
    operator_->Request(OperatorAct{OperatorAction::kQuarantineRelease, sampler.name});
  }
  for (const VersionStatus& version : core->Status(time).versions) {
    last_version_ = std::max(last_version_, version.version);
  }
  trainer_->Publish(++last_version_, RandomBytes());
  quiesce(20);
}

}  // namespace lockstep::core
