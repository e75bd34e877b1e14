#include "tools/cli/resolve_flags.h"

#include <iterator>
#include <optional>

#include "bridge/auth/keys.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;

constexpr FlagSpec kFlags[] = {
    {"--exact", "", "demand the family's exact programs"},
    {"--lane", "LANE", "scoring, active_lora or full_param"},
    {"--tp", "N", "tensor parallel degree; default the contract's own"},
    {"--ep", "N", "expert parallel degree; default the contract's own"},
    {"--cp", "N", "context parallel degree; default the contract's own"},
    {"--dp", "N", "data parallel degree; default the contract's own"},
    {"--local-partial", "ID", "v2, v3 or any alias, instead of the config's own"},
    {"--swiglu", "ID", "one_round, two_round or a program id, instead of the config's own"},
    {"--realisation", "ID", "the SiLU of the SwiGLU sites, instead of the config's own"},
};

}  // namespace

std::vector<FlagSpec> WithResolveFlags(std::vector<FlagSpec> flags) {
  flags.insert(flags.end(), std::begin(kFlags), std::end(kFlags));
  return flags;
}

absl::StatusOr<ResolveOptions> ResolveOptionsOf(const Args& args) {
  ResolveOptions options;
  options.exact = args.Has("--exact");
  constexpr absl::string_view kLanes[] = {"scoring", "active_lora", "full_param"};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::string> lane, args.OneOf("--lane", kLanes));
  if (lane.has_value()) options.lane = *LaneFromName(*lane);
  LOCKSTEP_ASSIGN_OR_RETURN(options.tp, args.U64("--tp"));
  LOCKSTEP_ASSIGN_OR_RETURN(options.ep, args.U64("--ep"));
  LOCKSTEP_ASSIGN_OR_RETURN(options.cp, args.U64("--cp"));
  LOCKSTEP_ASSIGN_OR_RETURN(options.dp, args.U64("--dp"));
  options.local_partial = args.TextOr("--local-partial", "");
  options.swiglu = args.TextOr("--swiglu", "");
  options.realisation = args.TextOr("--realisation", "");
  return options;
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  return auth::ReadTextFile(path, kMaxConfigBytes);
}

}  // namespace lockstep::tools
