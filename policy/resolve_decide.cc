#include "policy/resolve_decide.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

absl::string_view NameOf(const FamilyInfo* family) {
  return family == nullptr ? kFamilyNone : family->name;
}

void CheckArchitectures(const ConfigFacts& facts, RefusalList& refusals) {
  for (const Located& entry : facts.architectures) {
    const FamilyInfo* named = FamilyOfArchitecture(entry.value->get_ref<const std::string&>());
    const bool same = named == facts.type_family ||
                      (facts.dense_type_with_experts && named == FindFamily("qwen3_5_dense"));
    if (same) continue;
    refusals.Add(
        RefusalCode::kStampConflict, entry.path,
        absl::StrCat(entry.path, " names ", QuoteJson(*entry.value), ", ",
                     named == nullptr ? "which is no architecture of an exact family"
                                      : absl::StrCat("an architecture of family ", named->name),
                     ", but ", TypeText(facts), " is family ", NameOf(facts.type_family),
                     "; correct whichever is wrong"));
  }
}

// Some but not all of the five is never a partial family, whoever asks for what.
void CheckActiveLoraFlags(const ConfigFacts& facts, RefusalList& refusals) {
  std::vector<std::string> present;
  std::vector<std::string> missing;
  for (absl::string_view flag : kActiveLoraFlags) {
    const std::string name(flag);
    (facts.true_flags.count(name) > 0 ? present : missing).push_back(name);
  }
  if (present.empty() || missing.empty()) return;
  const std::string& first = facts.true_flags.at(present.front());
  const std::string prefix = first.substr(0, first.size() - present.front().size());
  for (const std::string& flag : missing) {
    refusals.Add(RefusalCode::kPartialFamily, absl::StrCat(prefix, flag),
                 absl::StrCat("this flag is not true although ", absl::StrJoin(present, ", "), " ",
                              present.size() == 1 ? "is" : "are",
                              "; the active-LoRA lane has all five components or none: set all "
                              "five flags or remove them"));
  }
}

// "" for a value that is neither null nor a string.
std::string StampName(const json& stamp) {
  if (stamp.is_null()) return std::string(kFamilyNone);
  return stamp.is_string() ? stamp.get<std::string>() : "";
}

void CheckStampName(const Located& stamp, const std::string& name, const ConfigFacts& facts,
                    RefusalList& refusals) {
  if (name == kFamilyNone || name == NameOf(facts.type_family)) return;
  std::vector<std::string> known;
  for (const FamilyInfo& family : Families()) known.emplace_back(family.name);
  const std::string overwrite = "; resolve with --exact or a lane to overwrite the stamp";
  if (!stamp.value->is_string()) {
    refusals.Add(
        RefusalCode::kBadConfig, stamp.path,
        absl::StrCat("expected a family's name or null, got ", QuoteJson(*stamp.value), overwrite));
  } else if (FindFamily(name) == nullptr) {
    refusals.Add(RefusalCode::kUnknownIdentifier, stamp.path,
                 absl::StrCat(UnknownNameText("family", name, known), overwrite));
  } else {
    refusals.Add(RefusalCode::kStampConflict, stamp.path,
                 absl::StrCat("the config is stamped '", name, "', but ", TypeText(facts),
                              " is family ", NameOf(facts.type_family), overwrite));
  }
}

Decision DecideByStamp(const ConfigFacts& facts, RefusalList& refusals) {
  Decision decision;
  const std::string name = StampName(*facts.stamps.front().value);
  for (const Located& stamp : facts.stamps) {
    CheckStampName(stamp, StampName(*stamp.value), facts, refusals);
  }
  const Located& last = facts.stamps.back();
  if (StampName(*last.value) != name) {
    refusals.Add(
        RefusalCode::kStampConflict, last.path,
        absl::StrCat(last.path, " is ", QuoteJson(*last.value), " and ", facts.stamps.front().path,
                     " is ", QuoteJson(*facts.stamps.front().value),
                     "; a config has one stamp: remove one of them"));
  }
  if (name != kFamilyNone) {
    decision.family = facts.type_family;
    decision.demanded = true;
  }
  return decision;
}

void CheckFlagFamily(const ConfigFacts& facts, absl::string_view flag, bool fits,
                     absl::string_view family, RefusalList& refusals) {
  if (fits) return;
  refusals.Add(RefusalCode::kStampConflict, facts.true_flags.at(std::string(flag)),
               absl::StrCat("the flag ", flag, " is true and asks for ", family, ", but ",
                            TypeText(facts), " is family ", NameOf(facts.type_family),
                            "; remove the flag or correct the model type"));
}

Decision DecideByFlags(const ConfigFacts& facts, RefusalList& refusals) {
  Decision decision;
  const auto is_true = [&](absl::string_view flag) {
    return facts.true_flags.count(std::string(flag)) > 0;
  };
  const bool qwen = facts.type_family != nullptr && facts.type_family->exact_by_default;
  const bool glm = NameOf(facts.type_family) == "glm52";
  const auto demand = [&](absl::string_view flag, bool fits, absl::string_view family) {
    CheckFlagFamily(facts, flag, fits, family, refusals);
    decision.family = facts.type_family;
    decision.demanded = true;
  };
  if (is_true(kQwen35Flag)) demand(kQwen35Flag, qwen, "qwen3_5_dense or qwen3_5_moe");
  if (is_true(kGlm52Flag)) demand(kGlm52Flag, glm, "glm52");
  if (is_true(kGlm52FullParamFlag)) {
    demand(kGlm52FullParamFlag, glm, "glm52");
    decision.lane = Lane::kFullParam;
  }
  if (facts.AllActiveLoraFlags()) {
    demand(kActiveLoraFlags[0], glm, "glm52");
    if (decision.lane == Lane::kFullParam) {
      refusals.Add(RefusalCode::kStampConflict,
                   facts.true_flags.at(std::string(kGlm52FullParamFlag)),
                   "full-parameter training and the active-LoRA lane are both asked for, but an "
                   "adapter lane's base is frozen: remove one of them");
    }
    decision.lane = Lane::kActiveLora;
  }
  if (!decision.demanded && facts.type_family != nullptr && facts.type_family->exact_by_default) {
    decision.family = facts.type_family;
  }
  return decision;
}

}  // namespace

std::string TypeText(const ConfigFacts& facts) {
  return facts.model_type.empty() ? "no model_type"
                                  : absl::StrCat("model_type '", facts.model_type, "'");
}

Decision Decide(const ConfigFacts& facts, const ResolveOptions& options, RefusalList& refusals) {
  CheckArchitectures(facts, refusals);
  CheckActiveLoraFlags(facts, refusals);
  if (options.exact || options.lane != Lane::kNone) {
    return {facts.type_family, options.lane, /*demanded=*/true};
  }
  for (const Unfit& error : facts.flag_errors) {
    if (!facts.stamps.empty()) break;  // the stamp wins over every flag
    refusals.Add(RefusalCode::kBadConfig, error.path, error.message);
  }
  const Decision decision =
      facts.stamps.empty() ? DecideByFlags(facts, refusals) : DecideByStamp(facts, refusals);
  const auto one_round = facts.true_flags.find(std::string(kStampOneRoundKey));
  if (one_round != facts.true_flags.end() && decision.family == nullptr) {
    refusals.Add(RefusalCode::kStampConflict, one_round->second,
                 absl::StrCat("the stamp says one-round SwiGLU and no exact family, which no "
                              "resolver writes; resolve with --exact or a lane to write one "
                              "coherent stamp"));
  }
  return decision;
}

}  // namespace lockstep
