#ifndef LOCKSTEP_TESTS_SIM_INVARIANTS_H_
#define LOCKSTEP_TESTS_SIM_INVARIANTS_H_

// The invariants of ARCHITECTURE.md, checked against what a core emits. The checker outlives
// crashes of the bridge, so what was acknowledged before one must still hold after it.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bridge/core/core_testing.h"

namespace lockstep::core {

class Invariants {
 public:
  // Records first, then sends, as the loop carries them out.
  void OnRecord(const LedgerRecord& record);
  void OnSend(const Send& send);
  void OnEffect(const Effect& effect);
  void OnServed(const Incarnation& incarnation, uint64_t version, const Bytes& bytes);
  // I2: nothing that a sampler serves has changed under it.
  void OnWorld(World& world);
  void OnRestart(World& world);

  // Empty: all hold. Else the first breach.
  const std::string& breach() const { return breach_; }

 private:
  void Require(bool holds, const std::string& what) {
    if (!holds && breach_.empty()) breach_ = what;
  }
  void OnVersion(const VersionRecord& record);
  void OnDecision(const Decision& decision);

  std::string breach_;
  uint64_t newest_epoch_ = 0;
  std::map<uint64_t, VersionRecord> versions_;
  uint64_t newest_sealed_ = 0;
  uint64_t newest_sealed_epoch_ = 0;
  std::map<std::string, Decision> decisions_;
  std::map<std::pair<Incarnation, uint64_t>, Bytes> served_;
  std::set<std::pair<Incarnation, uint64_t>> live_;
  std::map<Incarnation, uint64_t> cache_epochs_;
  std::set<uint64_t> acknowledged_;
  std::map<std::pair<PeerId, uint64_t>, Digest256> offer_keys_;
  std::set<uint64_t> arenas_;
  std::map<uint64_t, std::set<Incarnation>> readers_;
};

}  // namespace lockstep::core

#endif  // LOCKSTEP_TESTS_SIM_INVARIANTS_H_
