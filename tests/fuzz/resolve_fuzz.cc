// Whatever a config.json says, it is refused with reasons or resolves to a well-formed
// contract that reads back as itself and whose stamp resolves to the same family. The first
// byte of the input chooses what is asked for.

#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "policy/contract.h"
#include "policy/resolve.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

lockstep::ResolveOptions OptionsOf(uint8_t choice) {
  lockstep::ResolveOptions options;
  options.lane = static_cast<lockstep::Lane>(choice & 3);
  options.exact = (choice & 4) != 0;
  if (choice & 8) options.tp = 16;
  if (choice & 16) options.cp = 2;
  if (choice & 32) options.local_partial = "v3";
  if (choice & 64) options.swiglu = "two_round";
  if (choice & 128) options.adapter.merged = true;
  return options;
}

void CheckAgreed(const lockstep::Resolution& resolution, const lockstep::ResolveOptions& options) {
  const lockstep::Contract& contract = *resolution.contract;
  Require(resolution.family == contract.family);
  Require(lockstep::CheckContract(contract).empty());
  const auto read = lockstep::ReadContract(lockstep::CanonicalContract(contract));
  Require(read.contract.has_value() && *read.contract == contract);
  lockstep::ResolveOptions again = options;
  again.lane = lockstep::Lane::kNone;
  again.exact = false;
  // Without a lane the stamp alone decides, and it says what was resolved.
  const auto stamped = lockstep::ResolveConfig(resolution.stamped_config, again);
  Require(stamped.contract.has_value() && stamped.family == resolution.family);
}

void Judge(uint8_t choice, absl::string_view config) {
  const lockstep::ResolveOptions options = OptionsOf(choice);
  const lockstep::Resolution resolution = lockstep::ResolveConfig(config, options);
  Require(resolution.contract.has_value() == resolution.refusals.empty());
  Require(lockstep::ResolutionJson(resolution)["family"].is_string());
  if (resolution.contract) {
    CheckAgreed(resolution, options);
    return;
  }
  Require(resolution.family == "none" && resolution.stamped_config.empty());
  for (const auto& refusal : resolution.refusals) Require(!refusal.message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  Judge(data[0], text.substr(1));
  lockstep::ReadContract(text.substr(1));  // the same text as a peer's contract: never a crash
  return 0;
}
