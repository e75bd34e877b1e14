#include "bridge/core/status.h"
namespace lockstep::core {
ExplainReply ExplainVersion(const Machine&, const std::string&, Time) { return {}; }
ExplainReply ExplainSampler(const Machine&, const std::string&, Time) { return {}; }
ExplainReply ExplainRollout(const Machine&, const std::string&, const std::optional<Decision>&) {
  return {};
}
}  // namespace lockstep::core
