#include "bridge/loop/daemon_flags.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "policy/nearest.h"
#include "policy/status_macros.h"

namespace lockstep::loop {
namespace {

constexpr size_t kMaxRunBytes = 64;
constexpr int64_t kMinLeaseMs = 100;
constexpr int64_t kMaxLeaseMs = 3'600'000;
constexpr double kMaxTimeoutS = 30 * 86'400.0;
constexpr uint64_t kMaxKeptVersions = core::kMaxArenas - 2;  // one being filled, one spare

using Value = absl::string_view;

absl::Status Bad(absl::string_view why) { return absl::InvalidArgumentError(why); }

absl::Status SetU64(uint64_t& to, Value text, uint64_t min, uint64_t max) {
  uint64_t number = 0;
  // SimpleAtoi takes spaces and a sign.
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == Value::npos;
  if (!digits || !absl::SimpleAtoi(text, &number) || number < min || number > max) {
    return Bad(absl::StrCat("is no whole number from ", min, " to ", max));
  }
  to = number;
  return absl::OkStatus();
}

absl::Status SetNumber(double& to, Value text, double max) {
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !std::isfinite(number) || number < 0 || number > max) {
    return Bad(absl::StrCat("is no number from 0 to ", max));
  }
  to = number;
  return absl::OkStatus();
}

absl::Status SetSeconds(int64_t& to_ms, Value text) {
  double seconds = 0;
  LOCKSTEP_RETURN_IF_ERROR(SetNumber(seconds, text, kMaxTimeoutS));
  if (seconds < 0.001) return Bad("must be at least 0.001");
  to_ms = static_cast<int64_t>(std::llround(seconds * 1000));
  return absl::OkStatus();
}

// The run's name is a folder's, too.
absl::Status SetRun(std::string& to, Value text) {
  const bool usable =
      !text.empty() && text.size() <= kMaxRunBytes && text[0] != '.' &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
          Value::npos;
  if (!usable) {
    return Bad(absl::StrCat("is no run's name: 1 to ", kMaxRunBytes,
                            " letters, digits, '.', '_' and '-', no '.' first"));
  }
  to = std::string(text);
  return absl::OkStatus();
}

absl::Status SetText(std::string& to, Value text) {
  if (text.empty()) return Bad("is empty");
  to = std::string(text);
  return absl::OkStatus();
}

absl::Status SetLevel(LogLevel& to, Value text) {
  const std::optional<LogLevel> level = LogLevelFromName(text);
  if (!level.has_value()) return Bad("is none of debug, info, warning, error");
  to = *level;
  return absl::OkStatus();
}

absl::Status SetRole(SourceRole& to, Value text) {
  constexpr std::pair<Value, SourceRole> kRoles[] = {{"actor", SourceRole::kActor},
                                                     {"reference", SourceRole::kReference},
                                                     {"critic", SourceRole::kCritic},
                                                     {"draft", SourceRole::kDraft}};
  for (const auto& [name, role] : kRoles) {
    if (name != text) continue;
    to = role;
    return absl::OkStatus();
  }
  return Bad("is none of actor, reference, critic, draft");
}

struct Flag {
  Value name;
  Value value;  // in the usage; empty: a switch
  Value help;
  absl::Status (*set)(DaemonFlags& flags, Value text);
};

constexpr uint64_t kAnyU64 = std::numeric_limits<int64_t>::max();

const Flag kFlags[] = {
    {"--listen", "ADDR",
     "ipc://PATH or tcp://HOST:PORT (default: bridge.sock in the run folder,\n"
     "$XDG_RUNTIME_DIR/lockstep or lockstep-UID in the temporary folder)",
     [](DaemonFlags& f, Value v) { return SetText(f.listen, v); }},
    {"--state-dir", "DIR",
     "ledger and spool (default: lockstep/RUN in $XDG_STATE_HOME or\n"
     "$HOME/.local/state, else state/RUN in the run folder)",
     [](DaemonFlags& f, Value v) { return SetText(f.state_dir, v); }},
    {"--run", "NAME", "the run that this bridge serves (default: default)",
     [](DaemonFlags& f, Value v) { return SetRun(f.config.run, v); }},
    {"--keys", "FILE", "the bridge's .key file; needed with tcp",
     [](DaemonFlags& f, Value v) { return SetText(f.keys_path, v); }},
    {"--allow-list", "FILE", "who may come: lines of KEY NAME ROLE; needed with tcp",
     [](DaemonFlags& f, Value v) { return SetText(f.allow_list_path, v); }},
    {"--log-level", "LEVEL", "debug, info, warning or error (default: info)",
     [](DaemonFlags& f, Value v) { return SetLevel(f.log_level, v); }},
    {"--max-lag", "N", "versions that a rollout may be behind the newest (default: 0)",
     [](DaemonFlags& f, Value v) { return SetU64(f.config.max_lag, v, 0, kAnyU64); }},
    {"--allow-mixed-versions", "", "admit rollouts decoded under several versions",
     [](DaemonFlags& f, Value) {
       f.config.allow_mixed_versions = true;
       return absl::OkStatus();
     }},
    {"--tolerance-max-abs-diff", "X",
     "family `none` only, with the next: admit by tolerance instead of bits",
     [](DaemonFlags& f, Value v) {
       return SetNumber(f.config.tolerance_max_abs_diff, v, std::numeric_limits<float>::max());
     }},
    {"--tolerance-mean-k3", "X", "family `none` only, with the one before",
     [](DaemonFlags& f, Value v) {
       return SetNumber(f.config.tolerance_mean_k3, v, std::numeric_limits<float>::max());
     }},
    {"--rescore-timeout-s", "S", "how long a rollout waits for the trainer (default: 300)",
     [](DaemonFlags& f, Value v) { return SetSeconds(f.config.rescore_timeout_ms, v); }},
    {"--round-timeout-s", "S", "a sync's time beside that for its bytes (default: 30)",
     [](DaemonFlags& f, Value v) { return SetSeconds(f.config.round_timeout_base_ms, v); }},
    {"--lease-ms", "MS", "a peer silent for longer is gone (default: 10000)",
     [](DaemonFlags& f, Value v) {
       uint64_t ms = 0;
       LOCKSTEP_RETURN_IF_ERROR(SetU64(ms, v, kMinLeaseMs, kMaxLeaseMs));
       f.config.lease_ms = static_cast<int64_t>(ms);
       return absl::OkStatus();
     }},
    {"--kept-versions", "K", "versions whose bytes are kept, for rollbacks (default: 2)",
     [](DaemonFlags& f, Value v) {
       return SetU64(f.config.kept_versions, v, 1, kMaxKeptVersions);
     }},
    {"--spool-max-bytes", "N", "larger versions stay in memory only; 0: all (default: 4 GiB)",
     [](DaemonFlags& f, Value v) { return SetU64(f.config.spool_max_bytes, v, 0, kAnyU64); }},
    {"--source-role", "ROLE", "who may publish: actor, reference, critic or draft (default: actor)",
     [](DaemonFlags& f, Value v) { return SetRole(f.config.source_role, v); }},
    {"--version", "", "print the version and end",
     [](DaemonFlags& f, Value) {
       f.version = true;
       return absl::OkStatus();
     }},
    {"--help", "", "print this and end",
     [](DaemonFlags& f, Value) {
       f.help = true;
       return absl::OkStatus();
     }},
};

const Flag* FindFlag(Value name) {
  for (const Flag& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status Unknown(Value name) {
  std::vector<std::string> known;
  for (const Flag& flag : kFlags) known.emplace_back(flag.name);
  const std::vector<std::string> nearest = NearestNames(name, known);
  return Bad(absl::StrCat("unknown flag '", name, "'; did you mean ", nearest.front(),
                          "? --help lists all flags"));
}

absl::Status CheckTogether(const DaemonFlags& flags) {
  const core::Config& config = flags.config;
  if ((config.tolerance_max_abs_diff >= 0) != (config.tolerance_mean_k3 >= 0)) {
    return Bad("--tolerance-max-abs-diff and --tolerance-mean-k3 are one tolerance; give both");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DaemonFlags> ParseDaemonFlags(absl::Span<const std::string> words) {
  DaemonFlags flags;
  std::set<Value> given;
  for (size_t i = 0; i < words.size(); ++i) {
    const Value word = words[i];
    if (word.size() < 3 || word.substr(0, 2) != "--") {
      return Bad(absl::StrCat("'", word, "' is no flag; lockstepd takes flags only (--help)"));
    }
    const size_t equals = word.find('=');
    const Value name = word.substr(0, equals);
    const Flag* flag = FindFlag(name);
    if (flag == nullptr) return Unknown(name);
    if (!given.insert(flag->name).second) return Bad(absl::StrCat(name, " is given twice"));
    Value value;
    if (equals != Value::npos) {
      if (flag->value.empty()) return Bad(absl::StrCat(name, " takes no value"));
      value = word.substr(equals + 1);
    } else if (!flag->value.empty()) {
      if (++i == words.size()) return Bad(absl::StrCat(name, " needs a value: ", flag->value));
      value = words[i];
    }
    if (absl::Status set = flag->set(flags, value); !set.ok()) {
      return Bad(absl::StrCat(name, ": '", value, "' ", set.message()));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckTogether(flags));
  return flags;
}

std::string DaemonUsage() {
  std::string usage =
      "lockstepd: the bridge that moves weights from a trainer to samplers, proves the\n"
      "installed bytes and admits rollouts. SIGTERM drains; a restart carries on.\n\n";
  constexpr size_t kColumn = 29;
  for (const Flag& flag : kFlags) {
    std::string line = absl::StrCat("  ", flag.name, flag.value.empty() ? "" : " ", flag.value);
    line.resize(std::max(line.size() + 1, kColumn), ' ');
    const std::vector<std::string> help = absl::StrSplit(flag.help, '\n');
    absl::StrAppend(&usage, line, absl::StrJoin(help, "\n" + std::string(kColumn, ' ')), "\n");
  }
  return usage;
}

}  // namespace lockstep::loop
