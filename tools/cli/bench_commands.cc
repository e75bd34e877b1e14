// bench sync, bench admit: this machine's figures.

#include "tools/cli/bench_commands.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "policy/status_macros.h"
#include "tools/cli/bench_admit.h"
#include "tools/cli/bench_sync.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {
namespace {

absl::StatusOr<int> Sync(const Args& args, Io& io) {
  SyncBenchOptions options;
  constexpr absl::string_view kTransports[] = {"shm", "tcp"};
  LOCKSTEP_ASSIGN_OR_RETURN(const auto transport, args.OneOf("--transport", kTransports));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto bytes, args.U64("--bytes"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto rounds, args.U64("--rounds"));
  options.transport = transport.value_or(options.transport);
  options.bytes = bytes.value_or(options.bytes);
  options.rounds = static_cast<int>(std::min<uint64_t>(rounds.value_or(options.rounds), 1'000));
  LOCKSTEP_ASSIGN_OR_RETURN(const SyncBenchResult result, RunSyncBench(options));
  const char* limit = options.transport == "tcp" ? "raw socket" : "memory copy";
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"transport", options.transport},
                        {"bytes", result.bytes},
                        {"rounds", options.rounds},
                        {"gbytes_per_s", result.gbytes_per_s},
                        {"best_gbytes_per_s", result.best_gbytes_per_s},
                        {"limit", limit},
                        {"limit_gbytes_per_s", result.limit_gbytes_per_s},
                        {"ratio", result.ratio},
                        {"publish_to_live_ms", result.median_ms},
                        {"components_verified", result.components_verified}})
           << "\n";
    return kExitConverged;
  }
  io.out << absl::StrFormat(
      "publish to live over %s, digests and %d probe components on both sides: %.2f GB/s "
      "(%.1f ms for %d bytes, median of %d; best %.2f GB/s)\n"
      "%s in the same run: %.2f GB/s; ratio %.2f\n",
      options.transport, result.components_verified, result.gbytes_per_s, result.median_ms,
      result.bytes, options.rounds, result.best_gbytes_per_s, limit, result.limit_gbytes_per_s,
      result.ratio);
  return kExitConverged;
}

absl::StatusOr<int> Admit(const Args& args, Io& io) {
  AdmitBenchOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto rollouts, args.U64("--rollouts"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens, args.U64("--tokens"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto in_flight, args.U64("--in-flight"));
  options.rollouts = rollouts.value_or(options.rollouts);
  options.tokens = tokens.value_or(options.tokens);
  options.in_flight = in_flight.value_or(options.in_flight);
  options.state_parent = args.TextOr("--state-dir", "");
  LOCKSTEP_ASSIGN_OR_RETURN(const AdmitBenchResult result, RunAdmitBench(options));
  if (result.state_in_memory) {
    io.err << "warning: the ledger lies in memory here, so nothing is durable; name a folder on a "
              "disk with --state-dir\n";
  }
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"decisions", result.decisions},
                        {"decisions_per_s", result.decisions_per_s},
                        {"p50_ms", result.p50_ms},
                        {"p99_ms", result.p99_ms},
                        {"seconds", result.seconds},
                        {"tokens", options.tokens},
                        {"in_flight", options.in_flight},
                        {"durable", !result.state_in_memory}})
           << "\n";
    return kExitConverged;
  }
  io.out << absl::StrFormat(
      "%.0f durable decisions a second at level tokens, every check on (%d rollouts of %d tokens, "
      "%d under way at once)\n"
      "from submission to durable answer: p50 %.2f ms, p99 %.2f ms\n",
      result.decisions_per_s, result.decisions, options.tokens, options.in_flight, result.p50_ms,
      result.p99_ms);
  return kExitConverged;
}

}  // namespace

std::vector<Command> BenchCommands() {
  return {
      {.name = "bench sync",
       .help = "publish-to-live GB/s of this machine, beside a memory copy or a raw socket",
       .details = "Starts a bridge and a sampler of its own; this process is the trainer.\n",
       .flags = {{"--transport", "shm|tcp", "how the sampler gets the bytes; default shm"},
                 {"--bytes", "N", "of a version; default 512 MiB"},
                 {"--rounds", "N", "versions that are measured; default 7"}},
       .run = Sync},
      {.name = "bench admit",
       .help = "durable decisions a second of this machine, every check on",
       .details = "Starts a bridge and a sampler of its own; this process is the trainer.\n",
       .flags = {{"--rollouts", "N", "how many; default 100000"},
                 {"--tokens", "N", "of each; default 64"},
                 {"--in-flight", "N", "how many at once; default 512"},
                 {"--state-dir", "DIR",
                  "where to make the ledger's folder; default the system's "
                  "temporary one"}},
       .run = Admit},
  };
}

}  // namespace lockstep::tools
