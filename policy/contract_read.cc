// The strict reader of the JSON described in contract_json.cc.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "policy/contract.h"
#include "policy/json_text.h"
#include "policy/refusal_list.h"
#include "policy/registry.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits{kMaxContractBytes, kMaxContractDepth};
constexpr size_t kFloatHexDigits = 8;

std::optional<float> FloatFromBits(absl::string_view hex) {
  uint32_t bits = 0;
  const bool lower = std::none_of(hex.begin(), hex.end(), [](char c) {
    return !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f');
  });
  if (hex.size() != kFloatHexDigits || !lower || !absl::SimpleHexAtoi(hex, &bits)) {
    return std::nullopt;
  }
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Reads one JSON object; every key must be asked for, which Finish checks.
class ObjectReader {
 public:
  ObjectReader(const json& value, std::string path, RefusalList& refusals)
      : value_(value), path_(std::move(path)), refusals_(refusals) {
    if (!value_.is_object()) Refuse("", absl::StrCat("expected an object, got ", QuoteJson(value)));
  }

  const json* Optional(const std::string& key) {
    asked_.push_back(key);
    return FindNonNull(value_, key);
  }

  const json* Required(const std::string& key) {
    const json* found = Optional(key);
    if (found == nullptr && value_.is_object()) Refuse(key, "is missing; a contract states it");
    return found;
  }

  std::string String(const std::string& key) {
    const json* found = Required(key);
    if (found == nullptr) return "";
    if (!found->is_string()) return Wrong(key, *found, "a string"), "";
    return found->get<std::string>();
  }

  std::string OptionalString(const std::string& key) {
    return FindNonNull(value_, key) != nullptr ? String(key) : (asked_.push_back(key), "");
  }

  uint64_t Unsigned(const std::string& key) {
    const json* found = Required(key);
    if (found == nullptr) return 0;
    const std::optional<uint64_t> number = AsUnsigned(*found);
    if (!number) Wrong(key, *found, "a non-negative whole number");
    return number.value_or(0);
  }

  bool Bool(const std::string& key) {
    const json* found = Required(key);
    if (found == nullptr) return false;
    if (!found->is_boolean()) return Wrong(key, *found, "true or false"), false;
    return found->get<bool>();
  }

  float Float(const std::string& key) {
    const json* found = Required(key);
    if (found == nullptr) return 0;
    const std::optional<float> number =
        found->is_string() ? FloatFromBits(found->get_ref<const std::string&>()) : AsFloat(*found);
    if (!number) Wrong(key, *found, "a finite number or the 8 hex digits of a float32");
    return number.value_or(0);
  }

  Digest256 Digest(const std::string& key) {
    const std::string hex = String(key);
    absl::StatusOr<Digest256> digest = DigestFromHex(hex);
    if (!digest.ok() && !hex.empty()) Refuse(key, std::string(digest.status().message()));
    return digest.value_or(Digest256{});
  }

  // Keys of an open map (geometry, constants, lanes), each of them asked for.
  std::vector<std::string> Keys() {
    std::vector<std::string> keys;
    if (!value_.is_object()) return keys;
    for (const auto& item : value_.items()) keys.push_back(item.key());
    return keys;
  }

  void Refuse(const std::string& key, const std::string& message) {
    refusals_.Add(RefusalCode::kBadConfig, Path(key), message);
  }

  std::string Path(const std::string& key) const {
    if (key.empty()) return path_;
    return path_.empty() ? key : absl::StrCat(path_, ".", key);
  }

  void Finish() {
    for (const std::string& key : Keys()) {
      if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
      Refuse(key,
             absl::StrCat("is no part of a contract in ", UnknownNameText("key", key, asked_)));
    }
  }

 private:
  void Wrong(const std::string& key, const json& got, absl::string_view expected) {
    Refuse(key, absl::StrCat("expected ", expected, ", got ", QuoteJson(got)));
  }

  const json& value_;
  std::string path_;
  RefusalList& refusals_;
  std::vector<std::string> asked_;
};

Site ReadSite(const json& value, const std::string& path, RefusalList& refusals) {
  ObjectReader reader(value, path, refusals);
  Site site;
  site.program = CanonicalName(AliasKind::kProgram, reader.String("program"));
  site.realisation = reader.OptionalString("realisation");
  if (reader.Optional("realisation_digest") != nullptr) {
    site.realisation_digest = reader.Digest("realisation_digest");
  }
  if (const json* geometry = reader.Optional("geometry")) {
    ObjectReader entries(*geometry, reader.Path("geometry"), refusals);
    for (const std::string& key : entries.Keys()) site.geometry[key] = entries.Unsigned(key);
  }
  if (const json* constants = reader.Optional("constants")) {
    ObjectReader entries(*constants, reader.Path("constants"), refusals);
    for (const std::string& key : entries.Keys()) site.constants[key] = entries.Float(key);
  }
  reader.Finish();
  return site;
}

// Accepts the object of contract_json.cc; `policy` may be any alias and must fit the programs.
LocalPartial ReadLocalPartial(const json& value, RefusalList& refusals) {
  ObjectReader reader(value, "local_partial", refusals);
  LocalPartial policy;
  policy.leaf = reader.String("leaf");
  policy.fold = reader.String("fold");
  policy.contributors = reader.Unsigned("contributors");
  policy.order_digest = reader.Digest("order_digest");
  const std::string stated = reader.String("policy");
  const std::string name = CanonicalName(AliasKind::kLocalPartial, stated);
  if (name != LocalPartialName(policy)) {
    std::vector<std::string> known;
    for (const LocalPartialInfo& info : LocalPartials()) known.emplace_back(info.name);
    for (const AliasInfo& alias : Aliases()) {
      if (alias.kind == AliasKind::kLocalPartial) known.emplace_back(alias.alias);
    }
    const bool unknown = FindLocalPartial(name) == nullptr;
    refusals.Add(unknown ? RefusalCode::kUnknownIdentifier : RefusalCode::kBadConfig,
                 "local_partial.policy",
                 unknown ? UnknownNameText("local-partial policy", stated, known)
                         : absl::StrCat("'", stated,
                                        "' names other programs than the leaf and "
                                        "fold beside it (",
                                        LocalPartialName(policy), ")"));
  }
  reader.Finish();
  return policy;
}

void ReadLoraKind(ObjectReader& reader, Lora& lora) {
  const std::string kind = reader.String("kind");
  for (LoraKind known : {LoraKind::kActive, LoraKind::kMerged}) {
    const absl::string_view stem = known == LoraKind::kActive ? "active@v" : "merged@v";
    if (!absl::StartsWith(kind, stem)) continue;
    lora.kind = known;
    if (absl::SimpleAtoi(absl::string_view(kind).substr(stem.size()), &lora.version) &&
        LoraName(lora) == kind) {
      return;
    }
  }
  reader.Refuse("kind", absl::StrCat("expected active@vN or merged@vN, got '", kind, "'"));
}

Lora ReadLora(const json& value, RefusalList& refusals) {
  Lora lora;
  if (value.is_string() && value.get_ref<const std::string&>() == "none") return lora;
  ObjectReader reader(value, "lora", refusals);
  ReadLoraKind(reader, lora);
  lora.rank = reader.Unsigned("rank");
  lora.alpha = reader.Float("alpha");
  if (const json* targets = reader.Required("targets")) {
    const bool strings =
        targets->is_array() &&
        std::all_of(targets->begin(), targets->end(), [](const json& t) { return t.is_string(); });
    if (!strings) reader.Refuse("targets", "expected an array of strings");
    if (strings) lora.targets = targets->get<std::vector<std::string>>();
  }
  if (const json* lanes = reader.Required("lanes")) {
    ObjectReader entries(*lanes, reader.Path("lanes"), refusals);
    for (const std::string& site : entries.Keys()) {
      lora.lanes[site] = CanonicalName(AliasKind::kAdapterLane, entries.String(site));
    }
  }
  reader.Finish();
  return lora;
}

Scoring ReadScoring(const json& value, RefusalList& refusals) {
  ObjectReader reader(value, "scoring", refusals);
  Scoring scoring;
  scoring.temperature = reader.Float("temperature");
  scoring.logprobs = reader.String("logprobs");
  scoring.top_k_renormalised = reader.Bool("top_k_renormalised");
  scoring.top_p_renormalised = reader.Bool("top_p_renormalised");
  reader.Finish();
  return scoring;
}

Parallel ReadParallel(const json& value, RefusalList& refusals) {
  ObjectReader reader(value, "parallel", refusals);
  Parallel parallel;
  parallel.tp = reader.Unsigned("tp");
  parallel.ep = reader.Unsigned("ep");
  parallel.cp = reader.Unsigned("cp");
  parallel.dp = reader.Unsigned("dp");
  reader.Finish();
  return parallel;
}

Engine ReadEngine(const json& value, RefusalList& refusals) {
  ObjectReader reader(value, "engine", refusals);
  Engine engine{reader.String("trainer"), reader.String("sampler"), reader.Bool("pinned")};
  reader.Finish();
  return engine;
}

Tolerance ReadTolerance(const json& value, RefusalList& refusals) {
  ObjectReader reader(value, "tolerance", refusals);
  Tolerance tolerance{reader.Float("max_abs_delta"), reader.Float("mean_k3")};
  reader.Finish();
  return tolerance;
}

Contract ReadParts(const json& root, RefusalList& refusals) {
  ObjectReader reader(root, "", refusals);
  Contract contract;
  if (const std::string format = reader.String("format"); format != kContractFormat) {
    reader.Refuse("format", absl::StrCat("expected '", kContractFormat, "', got '", format, "'"));
  }
  contract.family = reader.String("family");
  if (const json* part = reader.Required("parallel")) {
    contract.parallel = ReadParallel(*part, refusals);
  }
  if (const json* sites = reader.Required("sites")) {
    ObjectReader entries(*sites, "sites", refusals);
    for (const std::string& name : entries.Keys()) {
      contract.sites[name] = ReadSite((*sites)[name], entries.Path(name), refusals);
    }
  }
  if (const json* part = reader.Optional("local_partial")) {
    contract.local_partial = ReadLocalPartial(*part, refusals);
  }
  if (const json* part = reader.Required("lora")) contract.lora = ReadLora(*part, refusals);
  if (const json* part = reader.Required("scoring")) {
    contract.scoring = ReadScoring(*part, refusals);
  }
  if (const json* part = reader.Optional("tolerance")) {
    contract.tolerance = ReadTolerance(*part, refusals);
  }
  const std::string level = reader.String("level");
  if (!LevelFromName(level)) {
    reader.Refuse("level", UnknownNameText("level", level, {"weights", "kernels", "tokens"}));
  }
  contract.level = LevelFromName(level).value_or(Level::kTokens);
  if (const json* part = reader.Optional("engine")) contract.engine = ReadEngine(*part, refusals);
  if (reader.Optional("layout") != nullptr) contract.layout = reader.Digest("layout");
  reader.Finish();
  return contract;
}

}  // namespace

ContractReading ReadContract(absl::string_view json_text) {
  ContractReading reading;
  absl::StatusOr<json> root = ParseJson(json_text, kLimits);
  if (!root.ok()) {
    reading.refusals.push_back(
        {RefusalCode::kBadConfig, "",
         absl::StrCat("the contract is unreadable: ", root.status().message())});
    return reading;
  }
  RefusalList refusals;
  Contract contract = ReadParts(*root, refusals);
  if (refusals.empty()) {
    for (Refusal& refusal : CheckContract(contract)) {
      refusals.Add(refusal.code, std::move(refusal.key), std::move(refusal.message));
    }
  }
  if (refusals.empty()) {
    reading.contract = std::move(contract);
  } else {
    reading.refusals = std::move(refusals).Take();
  }
  return reading;
}

}  // namespace lockstep
