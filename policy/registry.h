#ifndef LOCKSTEP_POLICY_REGISTRY_H_
#define LOCKSTEP_POLICY_REGISTRY_H_

// Every name a contract may use, as data: programs, SiLU realisations, local-partial
// policies, adapter lanes, families with their sites and admitted geometries, model types,
// and the strings by which other builds know the same things. All of it lies in
// registry_data.cc; adding a family or a program touches that file and nothing else.
//
// Example:
//   const ProgramInfo* info = FindProgram("swiglu/one_round_fp32@v1");
//   std::string id = CanonicalName(
//       AliasKind::kLocalPartial, "glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2");
//   // id == "local-partial v2"
//
// Names are compared as whole strings, never by prefix and never by "newer than".

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep {

enum class ProgramKind {
  kForward,  // decides bytes of the forward pass: may stand at a site
  kVjp,      // a backward program, versioned and declared apart from the contract
  kDigest,
  kDelta,
  kRetired,  // known so that it can be refused by name; nothing runs it
};

absl::string_view ProgramKindName(ProgramKind kind);

struct ProgramInfo {
  absl::string_view id;
  ProgramKind kind;
  absl::string_view sites;        // separated by one space; empty when it stands at no site
  absl::string_view description;  // one line, for people
  absl::string_view bytes;        // where its bytes part from its neighbours'
};

struct RealisationInfo {
  absl::string_view id;
  absl::string_view dtype;       // of the gate: "bf16" or "fp16"
  absl::string_view digest_hex;  // BLAKE2b-256 of the 65,536 float32 values
  absl::string_view description;
};

struct LocalPartialInfo {
  absl::string_view name;        // "local-partial v2"
  absl::string_view short_name;  // "local-partial@v2", the middle of a contract's short form
  absl::string_view option;      // "v2", what --local-partial takes
  absl::string_view leaf;
  absl::string_view fold;
};

// One module's adapter contract as builds in the field name it.
struct AdapterLaneInfo {
  absl::string_view id;
  absl::string_view family;
  absl::string_view site;
  absl::string_view adapter_program;
  absl::string_view swiglu_program;
  uint64_t tp;
  uint64_t rank;
  bool current;  // false: known, and refused against the current one
};

// When a family's site exists in a given model.
enum class SiteNeed {
  kAlways,
  kAttentionLayers,
  kLinearAttentionLayers,
  kExperts,
  kSharedExpert,
};

struct FamilySite {
  absl::string_view site;
  absl::string_view program;
  SiteNeed need = SiteNeed::kAlways;
  bool takes_realisation = false;  // a SiLU realisation belongs to the site
  uint64_t tp = 0;                 // tensor-parallel degree pinned here; 0: the contract's tp
};

struct AdmittedGeometry {
  uint64_t hidden;
  uint64_t dense_intermediate;
  uint64_t moe_intermediate;
};

struct FamilyInfo {
  absl::string_view name;
  absl::string_view label;
  absl::string_view model_type_stem;        // the type itself or the stem + "_..."
  absl::string_view architecture_stem;      // "Qwen3_5Moe", followed by For..., Model, Text..., MTP
  bool exact_by_default;                    // exact without --exact, lane, stamp or flag
  bool zero_centered_norm;                  // the norm's weight is 1 + w
  absl::string_view default_local_partial;  // empty without experts
  uint64_t contributors;                    // logical fold contributors; 0: the ep degree
  uint64_t default_tp, default_ep;          // cp and dp default to 1
  bool tp_pinned;                           // no other tp is admitted
  bool has_gdn;                             // cp splits its sequence through gdn_cp/*
  absl::Span<const FamilySite> sites;
  absl::Span<const AdmittedGeometry> geometries;  // empty: any geometry
  absl::string_view adapter_targets;              // the full set, separated by one space
  uint64_t adapter_rank;                          // the only rank admitted; 0: any
};

// How a model type's MLP relates to plain SwiGLU, SiLU(gate) * up.
enum class MlpKind {
  kPlainSwiglu,
  kNeverPlain,    // the model type alone decides, whatever hidden_act says
  kPlainIfStated  // not SiLU unless an activation key says so
};

struct ModelTypeInfo {
  absl::string_view model_type;  // the type itself or the type + "_..."
  absl::string_view label;
  MlpKind mlp;
  absl::string_view reason;  // for the two kinds that are not plain
  bool zero_centered_norm;
};

enum class AliasKind { kProgram, kLocalPartial, kAdapterLane };

struct AliasInfo {
  absl::string_view alias;
  AliasKind kind;
  absl::string_view target;
};

// What differs in bytes between two programs or realisations, with figures; order-free.
struct EffectInfo {
  absl::string_view a;
  absl::string_view b;
  absl::string_view text;
};

absl::Span<const ProgramInfo> Programs();
absl::Span<const RealisationInfo> Realisations();
absl::Span<const LocalPartialInfo> LocalPartials();
absl::Span<const AdapterLaneInfo> AdapterLanes();
absl::Span<const FamilyInfo> Families();  // the exact ones and, last, `none`
absl::Span<const ModelTypeInfo> ModelTypes();
absl::Span<const AliasInfo> Aliases();
absl::Span<const EffectInfo> Effects();

// Each returns nullptr when the whole string is not known. Aliases are not followed.
const ProgramInfo* FindProgram(absl::string_view id);
const RealisationInfo* FindRealisation(absl::string_view id, absl::string_view dtype);
const LocalPartialInfo* FindLocalPartial(absl::string_view name);
const LocalPartialInfo* FindLocalPartial(absl::string_view leaf, absl::string_view fold);
const AdapterLaneInfo* FindAdapterLane(absl::string_view id);
const FamilyInfo* FindFamily(absl::string_view name);
const FamilySite* FindFamilySite(const FamilyInfo& family, absl::string_view site);

// The row whose type is `model_type` or a stem of it ("gpt_oss" for "gpt_oss_text").
const ModelTypeInfo* FindModelType(absl::string_view model_type);

// The exact family of a model type; within qwen3_5*, `has_experts` selects the MoE one.
const FamilyInfo* FamilyOfModelType(absl::string_view model_type, bool has_experts);

// The exact family an `architectures` entry names, or nullptr.
const FamilyInfo* FamilyOfArchitecture(absl::string_view architecture);

bool ProgramStandsAt(const ProgramInfo& program, absl::string_view site);

// The target of an alias of that kind, or `name` itself.
std::string CanonicalName(AliasKind kind, absl::string_view name);

// Every program, realisation, policy, lane and alias: what an identifier may be.
std::vector<std::string> AllIdentifiers();

// "is not a known program; nearest: 'a', 'b'".
std::string UnknownNameText(absl::string_view what, absl::string_view unknown,
                            const std::vector<std::string>& known);

// Text of what differs in bytes between two ids, or a general sentence when no figure is known.
std::string EffectOf(absl::string_view a, absl::string_view b);

// Realisations recorded by a user's own GPU function are named with this prefix; the registry
// does not know their digest, so the contract's own is compared with the evidence.
inline constexpr absl::string_view kUserRealisationPrefix = "silu/user_";
inline constexpr absl::string_view kDefaultRealisation = "silu/ieee@v1";
inline constexpr absl::string_view kOneRound = "swiglu/one_round_fp32@v1";
inline constexpr absl::string_view kTwoRound = "swiglu/two_round@v1";
inline constexpr absl::string_view kFamilyNone = "none";

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_REGISTRY_H_
