#ifndef LOCKSTEP_POLICY_CONTRACT_H_
#define LOCKSTEP_POLICY_CONTRACT_H_

// A contract: the full list of programs that decide the bytes of a forward pass, with
// everything that selects between them. Its identity is the BLAKE2b-256 of its canonical
// form: JSON with keys sorted bytewise, no white space, UTF-8, integers in decimal, floats as
// the 8 lower-case hex digits of their float32 bits. `layout` and an unpinned `engine` are
// outside the identity; layout is compared by itself at registration.
//
// Example:
//   ContractReading read = ReadContract(json_text);
//   if (!read.contract) return Refuse(read.refusals);
//   ContractId(*read.contract);         // 32 bytes
//   ContractShortForm(*read.contract);  // "glm52/local-partial@v2#9c1e0a44"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "policy/ids.h"
#include "policy/refusal.h"

namespace lockstep {

// What a rollout must show (contracts.md section 4); each level includes those before it.
enum class Level { kWeights, kKernels, kTokens };

absl::string_view LevelName(Level level);  // "weights", "kernels", "tokens"
std::optional<Level> LevelFromName(absl::string_view name);

struct Site {
  std::string program;      // a registry id; empty: no claim about this site's bytes
  std::string realisation;  // of SiLU, at SwiGLU sites; else empty
  std::optional<Digest256> realisation_digest;  // of its table; set when `realisation` is
  // Whole numbers that select bytes: hidden, intermediate, shard, tp, ep, zero_centered, ...
  std::map<std::string, uint64_t> geometry;
  // float32 constants that select bytes: eps, scale, theta.
  std::map<std::string, float> constants;

  bool operator==(const Site&) const = default;
};

// Degrees of the run that the contract was made for.
struct Parallel {
  uint64_t tp = 1;
  uint64_t ep = 1;
  uint64_t cp = 1;
  uint64_t dp = 1;

  bool operator==(const Parallel&) const = default;
};

// The MoE local-partial policy. Its two programs also stand at moe_leaf and moe_fold.
struct LocalPartial {
  std::string leaf;
  std::string fold;
  uint64_t contributors = 0;
  Digest256 order_digest{};  // ContributorOrderDigest of the order folded

  bool operator==(const LocalPartial&) const = default;
};

enum class LoraKind { kNone, kActive, kMerged };

struct Lora {
  LoraKind kind = LoraKind::kNone;
  uint64_t version = 0;  // the N of active@vN or merged@vN
  uint64_t rank = 0;
  float alpha = 0;                           // scale is alpha / rank in float32
  std::vector<std::string> targets;          // sorted, unique
  std::map<std::string, std::string> lanes;  // site -> adapter lane id, where one is registered

  bool operator==(const Lora&) const = default;
};

struct Scoring {
  float temperature = 1;
  std::string logprobs = "decision_float32";  // recorded when the token was chosen
  bool top_k_renormalised = false;
  bool top_p_renormalised = false;

  bool operator==(const Scoring&) const = default;
};

// Instead of bit equality at level `tokens`; family `none` only.
struct Tolerance {
  float max_abs_delta = 0;  // largest |trainer - sampler| of a log-probability
  float mean_k3 = 0;

  bool operator==(const Tolerance&) const = default;
};

// Free build labels, shown; compared (and in the identity) only when pinned.
struct Engine {
  std::string trainer;
  std::string sampler;
  bool pinned = false;

  bool operator==(const Engine&) const = default;
};

struct Contract {
  std::string family;  // "qwen3_5_dense", "qwen3_5_moe", "glm52" or "none"
  Parallel parallel;
  std::map<std::string, Site> sites;
  std::optional<LocalPartial> local_partial;
  Lora lora;
  Scoring scoring;
  std::optional<Tolerance> tolerance;
  Level level = Level::kTokens;
  Engine engine;
  std::optional<Digest256> layout;  // LayoutDigest of the manifest, once there is one

  bool operator==(const Contract&) const = default;
};

inline constexpr absl::string_view kContractFormat = "lockstep contract@v1";
inline constexpr size_t kMaxContractBytes = 64 << 10;
inline constexpr int kMaxContractDepth = 8;
inline constexpr size_t kMaxSites = 64;
inline constexpr size_t kMaxNamesPerSite = 32;
inline constexpr size_t kMaxNameBytes = 128;
inline constexpr uint64_t kMaxGeometry = uint64_t{1} << 40;
inline constexpr uint64_t kMaxDegree = 65'536;

// BLAKE2b-256 of "lockstep contributor order@v1\n", then the count and each ordinal as
// little-endian uint64. The exact folds take 0..E-1, ascending.
Digest256 ContributorOrderDigest(const std::vector<uint64_t>& order);
Digest256 AscendingOrderDigest(uint64_t contributors);

// Every reason why `contract` is not well formed: unknown names, a program at a site where it
// cannot stand, parts that contradict each other, limits. Empty when it may be used.
std::vector<Refusal> CheckContract(const Contract& contract);

// The bytes that are hashed. `contract` must have passed CheckContract (strings in UTF-8).
std::string CanonicalContract(const Contract& contract);
Digest256 ContractId(const Contract& contract);
std::string ContractShortForm(const Contract& contract);

// Readable JSON with every part, layout and engine included; what travels at registration.
std::string ContractToJson(const Contract& contract);

struct ContractReading {
  std::optional<Contract> contract;  // set exactly when `refusals` is empty
  std::vector<Refusal> refusals;
};

// Reads ContractToJson's or the canonical form. Strict: unknown keys, missing parts and wrong
// types are refused by path; aliases are replaced by our ids; the result is checked.
ContractReading ReadContract(absl::string_view json_text);

// nullptr when the contract has no such site.
const Site* FindSite(const Contract& contract, absl::string_view site);

// "local-partial v2", or "leaf + fold" for a pair that has no name.
std::string LocalPartialName(const LocalPartial& policy);

// "active@v2", "merged@v1" or "none".
std::string LoraName(const Lora& lora);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_CONTRACT_H_
