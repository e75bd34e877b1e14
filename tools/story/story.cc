#include "tools/story/story.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "policy/status_macros.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr absl::Duration kCommandTimeout = absl::Seconds(60);
constexpr int kLiveTimeoutSeconds = 30;
constexpr absl::Duration kStartTimeout = absl::Seconds(20);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(10);
const char* const kAgreed[] = {"s1", "s2"};

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double Number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

uint64_t Count(const json& object, const char* key) {
  return static_cast<uint64_t>(Number(object, key));
}

// The versions for which the trace has a checkpoint, ascending.
std::vector<uint64_t> VersionsOf(const std::string& trace) {
  std::set<uint64_t> versions;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(trace, ignored)) {
    const std::string name = entry.path().filename().string();
    absl::string_view digits = name;
    uint64_t version = 0;
    if (absl::ConsumePrefix(&digits, "step") && absl::ConsumeSuffix(&digits, ".safetensors") &&
        absl::SimpleAtoi(digits, &version)) {
      versions.insert(version);
    }
  }
  return {versions.begin(), versions.end()};
}

std::string StepFile(const std::string& folder, uint64_t version) {
  return absl::StrCat(folder, "/step", version, ".safetensors");
}

std::vector<std::string> Join(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const json* FindSampler(const json& status, absl::string_view name) {
  const auto samplers = status.find("samplers");
  if (samplers == status.end() || !samplers->is_array()) return nullptr;
  for (const json& sampler : *samplers) {
    if (Text(sampler, "name") == name) return &sampler;
  }
  return nullptr;
}

}  // namespace

bool StoryReport::AllHeld() const {
  return !expectations.empty() &&
         std::all_of(expectations.begin(), expectations.end(),
                     [](const Expectation& expectation) { return expectation.held; });
}

Story::Story(StoryOptions options) : options_(std::move(options)) {
  report_.title = options_.title;
  report_.address = absl::StrCat("ipc://", options_.work, "/bridge.sock");
}

Story::~Story() = default;

absl::Status Story::Play() {
  const absl::Time start = absl::Now();
  versions_ = VersionsOf(options_.trace);
  if (versions_.empty()) {
    return absl::NotFoundError(
        absl::StrCat("'", options_.trace, "' holds no stepN.safetensors; unpack a trace there"));
  }
  std::error_code failed;
  for (const char* folder : {"/watch", "/s1", "/s2", "/s3", "/logs"}) {
    fs::create_directories(options_.work + folder, failed);
    if (failed) return absl::InternalError(absl::StrCat("cannot make ", options_.work, folder));
  }
  LOCKSTEP_RETURN_IF_ERROR(StartBridge());
  LOCKSTEP_RETURN_IF_ERROR(StartPeers());
  for (const uint64_t version : versions_) LOCKSTEP_RETURN_IF_ERROR(PlayVersion(version));
  LOCKSTEP_RETURN_IF_ERROR(CheckOddSampler());
  CheckTotals();
  report_.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  Leave();
  return absl::OkStatus();
}

absl::Status Story::StartBridge() {
  Say("starting the bridge");
  ProcessOptions options;
  options.stderr_path = options_.work + "/logs/lockstepd.log";
  options.outlive_parent = options_.keep;
  LOCKSTEP_ASSIGN_OR_RETURN(
      bridge_, ChildProcess::Start({options_.lockstepd, "--listen", report_.address, "--state-dir",
                                    options_.work + "/state", "--run", "demo"},
                                   options));
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (absl::Now() < deadline && !bridge_->ExitCode()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Finished status, Cli({"status"}, {0, 1, 3}));
    if (status.exit_code != 3) return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("the bridge did not start; its log is ", options_.work, "/logs/lockstepd.log"));
}

absl::Status Story::StartPeers() {
  Say("starting the trainer and three samplers");
  const std::string config = options_.trace + "/config.json";
  const auto start = [&](const std::string& name, std::vector<std::string> words,
                         const std::vector<std::string>& contract) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto process, StartCli(name, Join(std::move(words), contract)));
    peers_.push_back(std::move(process));
    return absl::OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(start(
      "trainer",
      {"publish", "--watch-dir", options_.work + "/watch", "--config", config, "--name", "trainer"},
      options_.contract_flags));
  const std::pair<const char*, const char*> samplers[] = {
      {"s1", "shm"}, {"s2", "tcp"}, {"s3", "shm"}};
  for (const auto& [name, transport] : samplers) {
    const bool odd = name == absl::string_view("s3");
    LOCKSTEP_RETURN_IF_ERROR(start(name,
                                   {"sampler", "--name", name, "--config", config, "--transport",
                                    transport, "--dump-on-live", options_.work + "/" + name},
                                   odd ? options_.odd_flags : options_.contract_flags));
  }
  return absl::OkStatus();
}

absl::Status Story::PlayVersion(uint64_t version) {
  Say(absl::StrCat("version ", version, ": publishing"));
  VersionRow row;
  row.version = version;
  std::error_code failed;
  const std::string checkpoint = StepFile(options_.trace, version);
  row.bytes = fs::file_size(checkpoint, failed);
  const std::string arriving = options_.work + "/watch/.arriving";
  fs::copy_file(checkpoint, arriving, failed);
  if (!failed) fs::rename(arriving, StepFile(options_.work + "/watch", version), failed);
  if (failed) return absl::InternalError(absl::StrCat("cannot copy ", checkpoint));

  LOCKSTEP_RETURN_IF_ERROR(Cli({"wait", "--version", absl::StrCat(version), "--samplers", "2",
                                "--timeout", absl::StrCat(kLiveTimeoutSeconds)},
                               {0})
                               .status());
  LOCKSTEP_RETURN_IF_ERROR(NoteVersion(version, row));
  if (version != versions_.front()) {
    LOCKSTEP_ASSIGN_OR_RETURN(row.changed,
                              ChangedShare(StepFile(options_.trace, version - 1), checkpoint));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(row.dumps_equal, DumpsEqual(version));
  LOCKSTEP_RETURN_IF_ERROR(SubmitRollouts(version, row));
  Say(absl::StrCat("version ", version, ": live on s1 and s2, ", row.admitted, " of ", row.rollouts,
                   " rollouts admitted"));
  report_.versions.push_back(std::move(row));
  return absl::OkStatus();
}

absl::Status Story::NoteVersion(uint64_t version, VersionRow& row) {
  LOCKSTEP_ASSIGN_OR_RETURN(const json status, CliJson({"status", "-o", "json"}, {0, 1}));
  report_.contract = Text(status, "contract");
  for (const char* name : kAgreed) {
    const json* sampler = FindSampler(status, name);
    SamplerCell cell;
    if (sampler != nullptr) {
      cell.state = Text(*sampler, "state");
      if (Count(*sampler, "live_version") != version) cell.state = "behind";
      cell.components_verified = Count(*sampler, "components_verified");
      cell.components_total = Count(*sampler, "components_total");
    }
    row.samplers.push_back(std::move(cell));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Story::DumpsEqual(uint64_t version) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const json published,
      CliJson({"digest", StepFile(options_.trace, version), "-o", "json"}, {0}));
  for (const char* name : kAgreed) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const json served,
        CliJson({"digest", StepFile(options_.work + "/" + name, version), "-o", "json"}, {0}));
    if (served != published) return false;
  }
  return true;
}

absl::Status Story::SubmitRollouts(uint64_t version, VersionRow& row) {
  std::ifstream lines(options_.trace + "/rollouts.jsonl");
  // Half of them from each sampler, as a router would have spread them.
  const std::string paths[] = {absl::StrCat(options_.work, "/rollouts-", version, "-s1.jsonl"),
                               absl::StrCat(options_.work, "/rollouts-", version, "-s2.jsonl")};
  std::ofstream files[] = {std::ofstream(paths[0]), std::ofstream(paths[1])};
  std::string line;
  while (std::getline(lines, line)) {
    const json rollout = json::parse(line, nullptr, false);
    if (!rollout.is_object()) return absl::DataLossError("an unreadable line in rollouts.jsonl");
    if (Count(rollout, "policy_version") == version) files[row.rollouts++ % 2] << line << '\n';
  }
  for (std::ofstream& file : files) file.close();
  if (row.rollouts == 0) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(SubmitFile(paths[0], kAgreed[0], row));
  return SubmitFile(paths[1], kAgreed[1], row);
}

absl::Status Story::SubmitFile(const std::string& path, const std::string& sampler,
                               VersionRow& row) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Finished submitted,
      Cli({"rollout", "submit", path, "--sampler", sampler, "-o", "json"}, {0, 1, 4}));
  for (const absl::string_view text : absl::StrSplit(submitted.out, '\n', absl::SkipEmpty())) {
    const json decision = json::parse(text, nullptr, false);
    if (!decision.is_object()) return absl::InternalError("a decision is not a JSON object");
    if (Text(decision, "decision") == "admit") {
      ++row.admitted;
      continue;
    }
    ++row.refused;
    RefusedRollout refused;
    refused.id = Text(decision, "id");
    refused.version = row.version;
    const auto reasons = decision.find("reasons");
    if (reasons != decision.end() && reasons->is_array() && !reasons->empty() &&
        reasons->front().is_string()) {
      refused.reason = reasons->front().get<std::string>();
    }
    refused.mismatched_tokens = Count(decision, "mismatched_tokens");
    refused.max_abs_diff = Number(decision, "max_abs_diff");
    refused.k3 = Number(decision, "k3");
    refused.k3_float32 = Number(decision, "k3_float32_naive");
    report_.refused.push_back(std::move(refused));
  }
  return absl::OkStatus();
}

absl::Status Story::CheckOddSampler() {
  LOCKSTEP_ASSIGN_OR_RETURN(const json status, CliJson({"status", "-o", "json"}, {0, 1}));
  const json* odd = FindSampler(status, "s3");
  const std::string state = odd == nullptr ? "absent" : Text(*odd, "state");
  report_.odd_reason = odd == nullptr ? "" : Text(*odd, "reason");
  Expect("s3 states another contract and is refused with contract_mismatch",
         state == "refused" && absl::StrContains(report_.odd_reason, "contract_mismatch"),
         absl::StrCat(state, ": ", report_.odd_reason));
  Expect(absl::StrCat("the refusal names the program: ", options_.odd_program),
         absl::StrContains(report_.odd_reason, options_.odd_program), report_.odd_reason);
  const bool nothing_sent = odd != nullptr && odd->contains("bytes_sent") &&
                            Count(*odd, "bytes_sent") == 0 && fs::is_empty(options_.work + "/s3");
  Expect("s3 was never sent a byte", nothing_sent);
  return absl::OkStatus();
}

void Story::CheckTotals() {
  uint64_t rollouts = 0, admitted = 0, refused = 0;
  bool live = true, dumps = true;
  for (const VersionRow& row : report_.versions) {
    rollouts += row.rollouts;
    admitted += row.admitted;
    refused += row.refused;
    dumps &= row.dumps_equal;
    for (const SamplerCell& cell : row.samplers) {
      live &= cell.state == "live" && cell.components_total > 0 &&
              cell.components_verified == cell.components_total;
    }
  }
  Expect(absl::StrCat("all ", versions_.size(),
                      " versions went live on s1 and s2, every kernel component equal"),
         live && report_.versions.size() == versions_.size());
  Expect("what s1 and s2 serve is what was published, tensor by tensor, byte by byte", dumps);
  const uint64_t expected = rollouts - std::min(rollouts, options_.expected_refused_rollouts);
  Expect(absl::StrCat(expected, " of ", rollouts, " rollouts admitted"),
         rollouts > 0 && admitted == expected, absl::StrCat(admitted, " admitted"));
  const bool reasons = std::all_of(
      report_.refused.begin(), report_.refused.end(), [](const RefusedRollout& rollout) {
        return rollout.reason == "logprob_mismatch" && rollout.k3_float32 == 0;
      });
  Expect(absl::StrCat(options_.expected_refused_rollouts,
                      " refused with logprob_mismatch, though the float32 K3 is 0"),
         refused == options_.expected_refused_rollouts && reasons,
         absl::StrCat(refused, " refused"));
}

void Story::Leave() {
  if (options_.keep) {
    bridge_->Detach();
    for (const auto& peer : peers_) peer->Detach();
    return;
  }
  for (const auto& peer : peers_) peer->Signal(SIGTERM);
  bool clean = true;
  for (const auto& peer : peers_) clean &= peer->Wait(kLeaveTimeout).ok();
  bridge_->Signal(SIGTERM);
  const absl::StatusOr<int> code = bridge_->Wait(kLeaveTimeout);
  Expect("everyone leaves when asked to", clean && code.ok() && *code == 0,
         code.ok() ? absl::StrCat("the bridge exits with ", *code) : code.status().ToString());
}

absl::StatusOr<Finished> Story::Cli(std::vector<std::string> words, std::vector<int> accepted) {
  const std::string shown = absl::StrJoin(words, " ");
  words.insert(words.begin(), options_.lockstep);
  LOCKSTEP_ASSIGN_OR_RETURN(
      Finished finished,
      RunToEnd(words, kCommandTimeout, {"LOCKSTEP_BRIDGE=" + report_.address, "NO_COLOR=1"}));
  if (std::find(accepted.begin(), accepted.end(), finished.exit_code) == accepted.end()) {
    return absl::InternalError(absl::StrCat("`lockstep ", shown, "` exits with ",
                                            finished.exit_code, ": ", finished.err, finished.out));
  }
  return finished;
}

absl::StatusOr<json> Story::CliJson(std::vector<std::string> words, std::vector<int> accepted) {
  const std::string shown = absl::StrJoin(words, " ");
  LOCKSTEP_ASSIGN_OR_RETURN(const Finished finished, Cli(std::move(words), std::move(accepted)));
  json value = json::parse(finished.out, nullptr, false);
  if (!value.is_object()) {
    return absl::InternalError(absl::StrCat("`lockstep ", shown, "` prints no JSON object"));
  }
  return value;
}

absl::StatusOr<std::unique_ptr<ChildProcess>> Story::StartCli(const std::string& name,
                                                              std::vector<std::string> words) {
  words.insert(words.begin(), options_.lockstep);
  ProcessOptions options;
  options.stdout_path = absl::StrCat(options_.work, "/logs/", name, ".out");
  options.stderr_path = absl::StrCat(options_.work, "/logs/", name, ".log");
  options.environment = {"LOCKSTEP_BRIDGE=" + report_.address, "NO_COLOR=1"};
  options.outlive_parent = options_.keep;
  return ChildProcess::Start(words, options);
}

void Story::Expect(std::string claim, bool held, std::string seen) {
  report_.expectations.push_back({std::move(claim), held, held ? "" : std::move(seen)});
}

void Story::Say(const std::string& line) const {
  if (options_.progress) options_.progress(line);
}

}  // namespace lockstep::tools
