#include "policy/agreement_text.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

constexpr absl::string_view kSameOnBoth = "state the same value on both sides";

// What each number of a site's geometry decides; order of no importance.
struct NumberMeaning {
  absl::string_view key;
  absl::string_view changes;
};

constexpr NumberMeaning kNumbers[] = {
    {"tp",
     "another tensor-parallel split: each ordinal sums other rows, and the partials are "
     "rounded at other places"},
    {"ep",
     "another split of the experts over ranks; the fold over logical contributors keeps its "
     "bytes, but the shards each rank holds are others"},
    {"cp", "another split of the sequence over ranks"},
    {"shard", "each ordinal owns other rows of the module"},
    {"hidden", "the site reads rows of another length: no output can be equal"},
    {"intermediate", "the module has another width: no output can be equal"},
    {"contributors", "the fold has another tree, so its sums round at other places"},
    {"zero_centered",
     "the norm's weight is w on one side and 1 + w on the other: every output of "
     "every norm differs"},
    {"grid", "state boundaries lie at other tokens"},
    {"rank", "adapters of another shape: no output can be equal"},
    {"eps", "the scale of every row may differ in its last bits"},
    {"scale", "the factor reaches every output it multiplies"},
    {"theta", "every rotation differs"},
    {"partial_rotary_factor", "other parts of each head are rotated"},
    {"realisation_digest", "equal names, other tables: at least one of 65,536 entries differs"},
};

absl::string_view LastStep(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? path : path.substr(dot + 1);
}

// What the command lines call a program or policy: "one_round", "v2"; "" without such a name.
std::string OptionFor(absl::string_view value) {
  for (const LocalPartialInfo& policy : LocalPartials()) {
    if (value == policy.name || value == policy.leaf || value == policy.fold) {
      return absl::StrCat("--local-partial ", policy.option);
    }
  }
  for (const AliasInfo& alias : Aliases()) {
    if (alias.target == value && absl::StartsWith(value, "swiglu/")) {
      return absl::StrCat("--swiglu ", alias.alias);
    }
  }
  return "";
}

std::string StartWith(absl::string_view for_sampler, absl::string_view for_trainer) {
  return absl::StrCat("start the sampler with ", for_sampler, ", or the trainer with ",
                      for_trainer);
}

std::string LaneEffect(const PartValues& part) {
  const AdapterLaneInfo* trainer = FindAdapterLane(part.trainer);
  const AdapterLaneInfo* sampler = FindAdapterLane(part.sampler);
  if (trainer == nullptr || sampler == nullptr) return "the adapters run another program";
  return EffectOf(trainer->adapter_program, sampler->adapter_program);
}

std::string ProgramRemedy(const PartValues& part) {
  const std::string sampler_option = OptionFor(part.trainer);
  const std::string trainer_option = OptionFor(part.sampler);
  const bool both = !sampler_option.empty() && !trainer_option.empty();
  // Routed experts have one program in every contract that a config resolves to.
  if (both && !absl::StrContains(part.path, "routed_experts")) {
    return StartWith(sampler_option, trainer_option);
  }
  return "resolve both sides from the same config with the same lane and options";
}

}  // namespace

std::string Described(absl::string_view value) {
  if (value.empty()) return "absent";
  if (const ProgramInfo* program = FindProgram(value)) {
    return absl::StrCat(value, " (", program->description, ")");
  }
  if (const RealisationInfo* realisation = FindRealisation(value, "bf16")) {
    return absl::StrCat(value, " (", realisation->description, ")");
  }
  if (const LocalPartialInfo* policy = FindLocalPartial(value)) {
    return absl::StrCat(value, " (", policy->leaf, ", ", policy->fold, ")");
  }
  return std::string(value);
}

std::string ChangesOf(const PartValues& part) {
  const absl::string_view path = part.path;
  const absl::string_view last = LastStep(path);
  if (path == "family") {
    return "families place other programs at their sites; the differences below say which bytes";
  }
  if (path == "level" || path == "tolerance") {
    return "no byte of a forward pass: it decides what a rollout must show to be admitted";
  }
  if (absl::StartsWith(path, "scoring")) {
    return "the recorded log-probabilities are of another distribution or another time";
  }
  if (absl::StartsWith(path, "engine")) {
    return "no byte by itself: the contract pins the build that was shown to run it";
  }
  if (path == "layout") return "the tensors, dtypes, shapes or tied groups are others";
  if (absl::StartsWith(path, "lora.lanes")) return LaneEffect(part);
  if (absl::StartsWith(path, "lora")) {
    return "the adapters' contribution to every adapted output";
  }
  if (absl::StartsWith(path, "local_partial") || last == "program" || last == "realisation") {
    if (part.trainer.empty() || part.sampler.empty()) {
      return "one side claims this site's bytes and the other does not";
    }
    return EffectOf(part.trainer, part.sampler);
  }
  for (const NumberMeaning& number : kNumbers) {
    if (number.key == last) return std::string(number.changes);
  }
  if (absl::StartsWith(path, "parallel")) return "the run has another shape";
  return "any output of this site may differ";
}

std::string RemedyOf(const PartValues& part) {
  const absl::string_view path = part.path;
  if (path == "family") {
    const bool trainer_exact = part.trainer != kFamilyNone;
    const bool sampler_exact = part.sampler != kFamilyNone;
    if (trainer_exact != sampler_exact) {
      return absl::StrCat("resolve the ", trainer_exact ? "sampler" : "trainer",
                          "'s config with --exact or the other side's lane, or resolve both "
                          "without");
    }
    return "publish and serve the same model";
  }
  if (absl::StartsWith(path, "local_partial") || LastStep(path) == "program") {
    return ProgramRemedy(part);
  }
  if (absl::StartsWith(path, "parallel.")) {
    const std::string flag = absl::StrCat("--", LastStep(path), " ");
    return StartWith(absl::StrCat(flag, part.trainer), absl::StrCat(flag, part.sampler));
  }
  if (absl::StartsWith(path, "lora")) {
    return "ask for the same lane and adapters on both sides; the current adapter contracts are "
           "those at v2";
  }
  if (path == "layout") return "publish the checkpoint of the model that the sampler serves";
  return std::string(kSameOnBoth);
}

}  // namespace lockstep
