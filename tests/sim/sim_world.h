#ifndef LOCKSTEP_TESTS_SIM_SIM_WORLD_H_
#define LOCKSTEP_TESTS_SIM_SIM_WORLD_H_

// A deterministic simulation: one core, model peers, and a network and workers that deliver
// in any order that the real ones could (each connection keeps its own order), with faults.
// Everything follows from the seed.

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bridge/core/core_testing.h"
#include "tests/sim/invariants.h"

namespace lockstep::core {

class SimWorld : public World {
 public:
  explicit SimWorld(uint64_t seed);

  // Random work and faults for so many events.
  void RunChaos(int events);
  // No more faults: everyone comes back, a last version is published.
  void Converge();

  const std::string& breach() const { return invariants_.breach(); }
  uint64_t last_version() const { return last_version_; }
  std::vector<ModelSampler*> AliveSamplers();

  void Step(InputBody body) override;

 protected:
  void Send(const core::Send& send) override;
  void Carry(const Effect& effect) override;

 private:
  uint64_t Random(uint64_t bound) { return engine_() % bound; }
  bool Chance(uint64_t one_in) { return Random(one_in) == 0; }

  void Collect();  // what the models produced, into channels
  bool DeliverOne();
  void PassTime(int64_t ms);
  void Act();    // a trainer publishes, a sampler submits, ...
  void Fault();  // something breaks
  void Break(ModelPeer& peer, bool noticed);
  void Crash();
  void RestartTrainer();
  ModelSampler& RandomSampler();
  Bytes RandomBytes();
  void SubmitSomething();

  std::mt19937_64 engine_;
  Invariants invariants_;
  std::map<PeerId, std::deque<InputBody>> to_bridge_;
  std::map<PeerId, std::deque<Envelope>> to_peer_;
  std::map<uint64_t, std::deque<InputBody>> uploads_;  // by arena
  std::vector<Effect> works_;                          // computed when they are delivered
  std::map<PeerId, bool> cut_;                         // silent connections: nothing passes
  std::map<std::string, Rollout> submitted_;
  ModelTrainer* trainer_ = nullptr;
  ModelPeer* operator_ = nullptr;
  uint64_t last_version_ = 0;
  uint64_t rollouts_ = 0;
  int crash_in_ = 0;  // 0: none; 1: before the commit; 2: after it
};

}  // namespace lockstep::core

#endif  // LOCKSTEP_TESTS_SIM_SIM_WORLD_H_
