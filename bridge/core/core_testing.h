#ifndef LOCKSTEP_BRIDGE_CORE_CORE_TESTING_H_
#define LOCKSTEP_BRIDGE_CORE_CORE_TESTING_H_

// For tests: model trainers and samplers, a model of memory, and a ledger that is nothing
// but the records the core emitted. Bytes are modelled as one number a tensor; a digest is
// the hash of key, version and numbers, so it differs whenever they do.
//
// Example:
//   World world;
//   ModelTrainer& trainer = world.AddTrainer("t");
//   ModelSampler& sampler = world.AddSampler("s1");
//   world.Settle();
//   trainer.Publish(1, {10, 20, 30});
//   world.Settle();
//   EXPECT_EQ(sampler.live_version, 1u);

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bridge/core/core.h"
#include "policy/contract.h"

namespace lockstep::core {

using Bytes = std::vector<uint64_t>;  // one number a tensor

Manifest ModelManifest();
Contract ModelContract(uint64_t tp = 1);
VersionDigest DigestOf(uint64_t version, const Digest256& key, const Bytes& bytes);
std::vector<ComponentDigest> ComponentsOf(uint64_t probe_seed, const Bytes& bytes,
                                          const std::string& build = "");
Incarnation IncarnationOf(uint64_t number);

// What the ledger would give back after these records were committed.
RecoveredState Recover(const std::vector<LedgerRecord>& records);

class World;

// A client's side of one connection: numbers requests, says Hello, hears answers.
class ModelPeer {
 public:
  ModelPeer(World& world, PeerRole role, std::string name, uint64_t incarnation);
  virtual ~ModelPeer() = default;

  void Connect();  // a new connection, Hello first
  uint64_t Request(Message body);
  void Tell(Message body);
  void Hear(const Envelope& envelope);

  // The newest message of that kind that was heard; nullptr when there was none.
  template <typename T>
  const T* Last() const {
    for (auto it = heard.rbegin(); it != heard.rend(); ++it) {
      if (const T* found = std::get_if<T>(&it->body)) return found;
    }
    return nullptr;
  }
  template <typename T>
  size_t Count() const {
    size_t count = 0;
    for (const Envelope& envelope : heard) count += std::holds_alternative<T>(envelope.body);
    return count;
  }

  World& world;
  const PeerRole role;
  const std::string name;
  Incarnation incarnation;
  PeerId peer = 0;
  uint64_t seq = 0;
  bool alive = true;
  bool turned_away = false;  // by a final refusal
  std::vector<Envelope> heard;

 protected:
  virtual void OnWelcome() {}
  virtual void OnMessage(const Envelope&) {}
};

class ModelTrainer : public ModelPeer {
 public:
  ModelTrainer(World& world, std::string name, uint64_t incarnation)
      : ModelPeer(world, PeerRole::kTrainer, std::move(name), incarnation) {}

  void Publish(uint64_t version, Bytes bytes);

  Contract contract = ModelContract();
  TransportKind transport = TransportKind::kShm;
  bool hold_seal = false;  // stop before SealVersion
  uint64_t epoch = 0;
  uint64_t publishing = 0;  // 0: nothing
  Bytes bytes;
  std::optional<PublishOutcome> outcome;  // of the newest answered publish

  void Seal();  // what hold_seal held back

 protected:
  void OnWelcome() override;
  void OnMessage(const Envelope& envelope) override;

 private:
  void Fill(const OfferAccepted& accepted);

  std::optional<OfferAccepted> accepted_;
  uint64_t offer_seq_ = 0;
  uint64_t seal_seq_ = 0;
};

class ModelSampler : public ModelPeer {
 public:
  ModelSampler(World& world, std::string name, uint64_t incarnation)
      : ModelPeer(world, PeerRole::kSampler, std::move(name), incarnation) {}

  Rollout MakeRollout(std::string id) const;

  Contract contract = ModelContract();
  std::vector<TransportKind> transports = {TransportKind::kShm, TransportKind::kTcp};
  // Faults.
  uint32_t corrupt_installs = 0;  // so many of the next installs are wrong
  bool other_kernel = false;
  bool no_receipt = false;
  bool stuck = false;  // hears, answers nothing in rounds

  std::optional<uint64_t> live_version;
  uint64_t cache_epoch = 0;  // of what is live
  uint64_t flushes = 0;      // grows with every activation, also one whose Live was lost
  Digest256 ticket{};
  bool fenced = false;
  uint64_t slot_arena = 0;  // mapped by the live slot; 0: own memory
  Bytes slot;               // what the live slot held when it was activated

 protected:
  void OnWelcome() override;
  void OnMessage(const Envelope& envelope) override;

 private:
  void Progress(uint64_t bytes_ready);
  Bytes Installed() const;
  void Release(uint64_t arena);

  std::optional<RoundStart> round_;
  bool sealed_ = false;
  bool corrupt_ = false;
  Bytes copy_;  // over TCP
};

// Runs one core and its peers. By default everything is delivered in order and at once; a
// simulation takes over `Deliver`.
class World {
 public:
  explicit World(Config config = DefaultConfig());
  virtual ~World() = default;

  static Config DefaultConfig();

  ModelTrainer& AddTrainer(const std::string& name);
  ModelSampler& AddSampler(const std::string& name);
  ModelPeer& AddOperator(const std::string& name);
  // A new process under the name of an old one.
  ModelSampler& RestartSampler(ModelSampler& old);

  void Start();
  // One step of the core, its records committed, its sends and effects carried out.
  virtual void Step(InputBody body);
  // Delivers all messages and finishes all work that is under way.
  void Settle();
  void Advance(int64_t ms);  // then Tick
  // Power cut: only committed records survive. Peers learn that their connection broke.
  void CrashBridge();
  void Kill(ModelPeer& peer);

  SamplerStatus StatusOf(const std::string& sampler);
  VersionStatus StatusOf(uint64_t version);
  uint64_t Events(const std::string& kind) const;

  // Inputs that peers and workers have produced and nobody has delivered.
  std::deque<InputBody> inputs;
  std::map<uint64_t, Bytes> memory;  // by arena
  std::map<uint64_t, Bytes> spool;   // by version
  std::vector<LedgerRecord> ledger;
  std::vector<std::unique_ptr<ModelPeer>> peers;
  std::map<uint64_t, Bytes> published;  // what the trainer sealed, by version
  Time time{1'000'000, 1};
  Config config;
  std::unique_ptr<Core> core;
  bool exited = false;
  std::string spool_error;

  PeerId NewPeerId() { return ++peer_ids_; }
  uint64_t NewIncarnation() { return ++incarnations_; }

 protected:
  virtual void Send(const core::Send& send);
  virtual void Carry(const Effect& effect);
  Outputs RunCore(InputBody body);
  void Commit(const Outputs& outputs);

 private:
  template <typename Peer>
  Peer& Add(const std::string& name);

  PeerId peer_ids_ = 0;
  uint64_t incarnations_ = 0;
  uint64_t entropy_ = 0;
};

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_CORE_TESTING_H_
