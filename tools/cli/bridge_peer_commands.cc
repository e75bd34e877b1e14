// publish and sampler: the file-based peers.

#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "policy/contract_json.h"
#include "policy/status_macros.h"
#include "tools/cli/bridge_commands.h"
#include "tools/cli/bridge_connect.h"
#include "tools/cli/bridge_contract.h"
#include "tools/cli/bridge_json.h"
#include "tools/cli/bridge_publish.h"
#include "tools/cli/bridge_sampler.h"
#include "tools/cli/bridge_tables.h"
#include "tools/cli/bridge_watch_dir.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_line.h"

namespace lockstep::tools {
namespace {

// How often a folder is looked at without being told to, for files that settle.
constexpr absl::Duration kLookEvery = absl::Milliseconds(500);

absl::StatusOr<std::optional<TransportKind>> TransportOf(const Args& args) {
  constexpr absl::string_view kTransports[] = {"shm", "tcp"};
  LOCKSTEP_ASSIGN_OR_RETURN(const auto name, args.OneOf("--transport", kTransports));
  if (!name.has_value()) return std::optional<TransportKind>();
  return std::optional(*name == "shm" ? TransportKind::kShm : TransportKind::kTcp);
}

void PrintNotes(const StatedContract& stated, Io& io) {
  for (const std::string& note : stated.notes) io.err << "note: " << note << "\n";
}

absl::StatusOr<FileTrainer> MakeTrainer(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(StatedContract stated, StateContract(args));
  PrintNotes(stated, io);
  TrainerOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.bridge, BridgeOf(args));
  LOCKSTEP_ASSIGN_OR_RETURN(options.transport, TransportOf(args));
  options.name = args.TextOr("--name", options.name);
  options.contract_json = std::move(stated.contract_json);
  return FileTrainer(std::move(options), std::move(stated.config_text));
}

void PrintOutcome(const PublishOutcome& outcome, Io& io) {
  if (io.format == Format::kJson) {
    io.out << JsonLine(OutcomeJson(outcome)) << std::endl;
  } else {
    io.out << OutcomeText(outcome, io) << std::flush;
  }
  if (outcome.zero_change) {
    io.err << "warning: version " << outcome.version
           << " has the very bytes of the version before; did the optimizer step reach it?\n";
  }
  if (outcome.nan_elements > 0) {
    io.err << "warning: version " << outcome.version << " has " << outcome.nan_elements
           << " NaN elements; they were synced as they are\n";
  }
}

absl::StatusOr<int> PublishOne(FileTrainer& trainer, const FoundCheckpoint& checkpoint,
                               StopSignal& stop, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PublishOutcome outcome,
                            trainer.Publish(checkpoint.path, checkpoint.version, stop));
  PrintOutcome(outcome, io);
  return ExitCodeOf(outcome);
}

// Publishes what appears in `folder` until `stop`. A checkpoint that cannot be published is
// reported and passed over; a bridge that is not there ends the command.
absl::StatusOr<int> PublishFolder(FileTrainer& trainer, const std::string& folder, uint64_t first,
                                  StopSignal& stop, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(CheckpointWatch watch, CheckpointWatch::Open(folder));
  int worst = kExitConverged;
  do {
    for (const FoundCheckpoint& found : watch.Take()) {
      if (found.version < first) continue;
      const absl::StatusOr<int> code = PublishOne(trainer, found, stop, io);
      if (code.ok()) {
        worst = std::max(worst, *code);
        first = found.version + 1;
        continue;
      }
      if (absl::IsCancelled(code.status())) return worst;
      if (absl::IsUnavailable(code.status())) return code.status();
      io.err << "lockstep publish: " << found.path << ": " << code.status().message() << "\n";
      if (!trainer.was_older()) worst = kExitDegraded;
    }
  } while (!stop.WaitUnlessReadable(watch.fd(), kLookEvery));
  return worst;
}

void PrintState(const std::string& name, const SamplerState& state, Io& io) {
  if (io.format == Format::kJson) {
    io.out << JsonLine({{"sampler", name},
                        {"time_ms", absl::ToUnixMillis(absl::Now())},
                        {"state", state.state},
                        {"live_version", state.live_version.has_value()
                                             ? nlohmann::json(*state.live_version)
                                             : nlohmann::json(nullptr)},
                        {"contract", state.contract_short},
                        {"reasons", RefusalsJson(state.reasons)}})
           << std::endl;
    return;
  }
  io.out << "sampler " << name << ": " << state.state;
  if (state.live_version.has_value()) {
    io.out << (state.state == "live" ? " on version " : ", live on version ")
           << *state.live_version;
  }
  for (const Refusal& reason : state.reasons) {
    io.out << "\n  " << RefusalCodeName(reason.code) << ": " << reason.message;
  }
  io.out << std::endl;
}

absl::StatusOr<int> Publish(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto version, args.U64("--version"));
  const std::string checkpoint = args.TextOr("--checkpoint", "");
  const std::string folder = args.TextOr("--watch-dir", "");
  if (checkpoint.empty() && folder.empty()) {
    return absl::InvalidArgumentError(
        "publish needs --checkpoint FILE --version N, or --watch-dir DIR");
  }
  if (!checkpoint.empty() && !version.has_value()) {
    return absl::InvalidArgumentError("--version is missing: the number to publish it under");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::Make());
  LOCKSTEP_ASSIGN_OR_RETURN(FileTrainer trainer, MakeTrainer(args, io));
  int code = kExitConverged;
  if (!checkpoint.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(code, PublishOne(trainer, {*version, checkpoint}, stop, io));
  }
  if (folder.empty()) return code;
  const uint64_t first = version.value_or(0) + (checkpoint.empty() ? 0 : 1);
  LOCKSTEP_ASSIGN_OR_RETURN(const int folder_code, PublishFolder(trainer, folder, first, stop, io));
  return std::max(code, folder_code);
}

absl::StatusOr<int> RunSampler(const Args& args, Io& io) {
  LOCKSTEP_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::Make());
  LOCKSTEP_ASSIGN_OR_RETURN(StatedContract stated, StateContract(args));
  PrintNotes(stated, io);
  FileSamplerOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.sampler.bridge, BridgeOf(args));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto transport, TransportOf(args));
  if (transport.has_value()) options.sampler.transports = {*transport};
  options.sampler.name = args.TextOr("--name", "");
  if (options.sampler.name.empty()) {
    return absl::InvalidArgumentError("--name is missing: what the run calls this sampler");
  }
  options.sampler.contract_json = std::move(stated.contract_json);
  options.dump_folder = args.TextOr("--dump-on-live", "");
  options.stay = args.Has("--stay");
  const std::string name = options.sampler.name;
  return RunFileSampler(std::move(options), stop,
                        [&](const SamplerState& state) { PrintState(name, state, io); });
}

}  // namespace

std::vector<Command> PeerCommands() {
  return {
      {.name = "publish",
       .help = "publish safetensors checkpoints as a trainer",
       .details =
           "Returns when the version is durable and every sampler whose contract agrees is live or "
           "failed:\n0, also when none is registered; 1 when some failed; 4 when the checkpoint or "
           "its contract is\nrefused. With --watch-dir it publishes every NAME.safetensors whose "
           "name ends in a number, which\nis its version, as it appears (renamed into the folder "
           "or closed there), and runs until it is\nstopped; --version is then the lowest to "
           "publish.\n",
       .flags = WithContractFlags(WithBridgeFlags(
           {{"--checkpoint", "FILE", "a .safetensors file"},
            {"--version", "N", "the number to publish it under; grows within a run"},
            {"--watch-dir", "DIR", "publish checkpoints as they appear there"},
            {"--name", "NAME", "this trainer's name; default trainer"},
            {"--transport", "shm|tcp", "how bytes go to the bridge; default by itself"}})),
       .run = Publish},
      {.name = "sampler",
       .help = "take versions as a sampler until stopped, and print each change of state",
       .details =
           "Leaves with 4 when its contract is refused before it was ever agreed, unless --stay. "
           "One that is\nrefused later (the trainer states another contract) stays and says so. "
           "Stopped by SIGINT or\nSIGTERM it leaves with 0, with 4 while refused and with 1 while "
           "quarantined.\n",
       .flags = WithContractFlags(WithBridgeFlags(
           {{"--name", "NAME", "what the run calls this sampler; needed"},
            {"--transport", "shm|tcp", "how bytes come from the bridge; default by itself"},
            {"--dump-on-live", "DIR",
             "write DIR/stepVERSION.safetensors from what is installed before it is live"},
            {"--stay", "", "wait for a trainer of the same contract although refused"}})),
       .run = RunSampler},
  };
}

}  // namespace lockstep::tools
