#include "bridge/core/state.h"

#include <utility>

namespace lockstep::core {
namespace {

constexpr std::pair<VersionState, absl::string_view> kVersionStates[] = {
    {VersionState::kOffered, "offered"},     {VersionState::kTransferring, "transferring"},
    {VersionState::kSealed, "sealed"},       {VersionState::kVerified, "verified"},
    {VersionState::kLive, "live"},           {VersionState::kRetired, "retired"},
    {VersionState::kDiscarded, "discarded"},
};

constexpr std::pair<SamplerState, absl::string_view> kSamplerStates[] = {
    {SamplerState::kWaiting, "waiting"},         {SamplerState::kRefused, "refused"},
    {SamplerState::kAssigned, "assigned"},       {SamplerState::kReceiving, "receiving"},
    {SamplerState::kSealed, "sealed"},           {SamplerState::kVerifying, "verifying"},
    {SamplerState::kActivating, "activating"},   {SamplerState::kLive, "live"},
    {SamplerState::kQuarantined, "quarantined"}, {SamplerState::kGone, "gone"},
};

template <typename Table, typename State>
absl::string_view NameIn(const Table& table, State state) {
  for (const auto& [known, name] : table) {
    if (known == state) return name;
  }
  return "unknown";
}

template <typename State, typename Table>
std::optional<State> StateIn(const Table& table, absl::string_view wanted) {
  for (const auto& [state, name] : table) {
    if (name == wanted) return state;
  }
  return std::nullopt;
}

}  // namespace

absl::string_view VersionStateName(VersionState state) { return NameIn(kVersionStates, state); }

std::optional<VersionState> VersionStateFromName(absl::string_view name) {
  return StateIn<VersionState>(kVersionStates, name);
}

absl::string_view SamplerStateName(SamplerState state) { return NameIn(kSamplerStates, state); }

std::optional<SamplerState> SamplerStateFromName(absl::string_view name) {
  return StateIn<SamplerState>(kSamplerStates, name);
}

}  // namespace lockstep::core
