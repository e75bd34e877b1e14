#include "bridge/core/state.h"

#include <utility>

namespace lockstep::core {
namespace {

constexpr std::pair<SamplerState, absl::string_view> kSamplerStates[] = {
    {SamplerState::kWaiting, "waiting"},         {SamplerState::kRefused, "refused"},
    {SamplerState::kAssigned, "assigned"},       {SamplerState::kReceiving, "receiving"},
    {SamplerState::kSealed, "sealed"},           {SamplerState::kVerifying, "verifying"},
    {SamplerState::kActivating, "activating"},   {SamplerState::kLive, "live"},
    {SamplerState::kQuarantined, "quarantined"}, {SamplerState::kGone, "gone"},
};

}  // namespace

absl::string_view SamplerStateName(SamplerState state) {
  for (const auto& [known, name] : kSamplerStates) {
    if (known == state) return name;
  }
  return "unknown";
}

std::optional<SamplerState> SamplerStateFromName(absl::string_view wanted) {
  for (const auto& [state, name] : kSamplerStates) {
    if (name == wanted) return state;
  }
  return std::nullopt;
}

}  // namespace lockstep::core
