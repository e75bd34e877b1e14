#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_TABLES_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_TABLES_H_

// What the bridge answers, laid out for people. io.format says whether every column is shown,
// io.color whether states are painted.
//
// Example:
//   io.out << StatusText(status, io);

#include <string>

#include "policy/protocol.h"
#include "tools/cli/io.h"

namespace lockstep::tools {

// Run and contract, versions, samplers, rollouts, and what is not as it should be.
std::string StatusText(const StatusReply& status, const Io& io);
std::string VersionsText(const StatusReply& status, const Io& io);
std::string SamplersText(const StatusReply& status, const Io& io);

// A publish: the version, then a row a sampler.
std::string OutcomeText(const PublishOutcome& outcome, const Io& io);

std::string ExplainText(const ExplainReply& reply, const Io& io);

// `text` in lines of at most `columns`, broken at spaces; a longer word keeps its own line.
std::string Wrap(absl::string_view text, size_t columns);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_TABLES_H_
