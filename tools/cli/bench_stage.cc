#include "tools/cli/bench_stage.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStartTimeout = absl::Seconds(20);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);
constexpr absl::Duration kRetryEvery = absl::Milliseconds(20);
constexpr long kTmpfsMagic = 0x01021994;  // linux/magic.h
constexpr size_t kMaxLogBytes = 2'000;    // of a log's end, shown in an error
constexpr char kSamplerName[] = "bench";

std::string ThisProgram() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/exe", failed).string();
}

std::string LogEnd(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const std::string log = text.str();
  return log.substr(log.size() > kMaxLogBytes ? log.size() - kMaxLogBytes : 0);
}

}  // namespace

absl::StatusOr<std::string> FindLockstepd() {
  const char* variable = std::getenv("LOCKSTEPD");
  const fs::path folder = fs::path(ThisProgram()).parent_path();
  std::vector<std::string> places = {(folder / "lockstepd").string(),
                                     (folder.parent_path() / "bridge" / "lockstepd").string()};
  if (variable != nullptr && *variable != '\0') places.insert(places.begin(), variable);
  for (const std::string& place : places) {
    if (::access(place.c_str(), X_OK) == 0) return place;
  }
  return absl::NotFoundError(absl::StrCat(
      "the bridge's program lockstepd is at none of ", absl::StrJoin(places, ", "),
      "; build it (bazel build --config=opt //bridge:lockstepd) or say where it is in LOCKSTEPD"));
}

absl::StatusOr<std::unique_ptr<BenchStage>> BenchStage::Start(const StageOptions& options) {
  std::error_code failed;
  const std::string parent =
      options.parent.empty() ? fs::temp_directory_path(failed).string() : options.parent;
  std::string folder = absl::StrCat(parent, "/lockstep-bench-XXXXXX");
  if (failed || ::mkdtemp(folder.data()) == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("cannot make a folder in '", parent, "'; name one that may be written to"));
  }
  std::unique_ptr<BenchStage> stage(new BenchStage(std::move(folder)));
  LOCKSTEP_RETURN_IF_ERROR(stage->StartBridge(options));
  return stage;
}

BenchStage::~BenchStage() {
  session_.reset();
  for (ChildProcess* process : {sampler_.get(), bridge_.get()}) {
    if (process == nullptr) continue;
    process->Signal(SIGTERM);
    process->Wait(kLeaveTimeout).IgnoreError();
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

transport::BridgeAddress BenchStage::address() const {
  return {absl::StrCat("ipc://", folder_, "/bridge.sock"), "bench", std::nullopt};
}

absl::Status BenchStage::Died(const std::string& who) const {
  return absl::InternalError(
      absl::StrCat("the benchmark's ", who, " ended: ", LogEnd(absl::StrCat(folder_, "/", who))));
}

absl::Status BenchStage::StartBridge(const StageOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string program, FindLockstepd());
  std::vector<std::string> words = {
      program, "--listen", address().address, "--state-dir", folder_ + "/state", "--run", "bench"};
  words.insert(words.end(), options.bridge_flags.begin(), options.bridge_flags.end());
  ProcessOptions process;
  process.stderr_path = folder_ + "/bridge";
  LOCKSTEP_ASSIGN_OR_RETURN(bridge_, ChildProcess::Start(words, process));
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (absl::Now() < deadline) {
    transport::SessionOptions session;
    session.bridge = address();
    auto opened = transport::ClientSession::Open(session, {});
    if (opened.ok()) {
      session_ = *std::move(opened);
      return absl::OkStatus();
    }
    if (bridge_->ExitCode().has_value()) return Died("bridge");
    absl::SleepFor(kRetryEvery);
  }
  return absl::DeadlineExceededError("the benchmark's bridge does not answer");
}

absl::Status BenchStage::StartSampler(absl::string_view config_json, const std::string& transport) {
  const std::string config = folder_ + "/config.json";
  if (!(std::ofstream(config) << config_json).flush()) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ", config));
  }
  ProcessOptions process;
  process.stderr_path = folder_ + "/sampler";
  LOCKSTEP_ASSIGN_OR_RETURN(
      sampler_,
      ChildProcess::Start({ThisProgram(), "sampler", "--name", kSamplerName, "--config", config,
                           "--transport", transport, "--bridge", address().address},
                          process));
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (absl::Now() < deadline) {
    LOCKSTEP_ASSIGN_OR_RETURN(const StatusReply status,
                              session_->Call<StatusReply>(StatusRequest{}, kStartTimeout));
    if (!status.samplers.empty()) return absl::OkStatus();
    if (sampler_->ExitCode().has_value()) return Died("sampler");
    absl::SleepFor(kRetryEvery);
  }
  return absl::DeadlineExceededError("the benchmark's sampler does not register");
}

bool BenchStage::state_in_memory() const {
  struct statfs info {};
  return ::statfs(folder_.c_str(), &info) == 0 && info.f_type == kTmpfsMagic;
}

}  // namespace lockstep::tools
