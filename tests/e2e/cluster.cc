#include "tests/e2e/cluster.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace lockstep::e2e {
namespace {

using nlohmann::json;
using tools::ChildProcess;
using tools::Finished;
using tools::ProcessOptions;

std::string Runfile(const std::string& path) { return std::filesystem::absolute(path).string(); }

void PrintLogs(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".log") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    std::cerr << "---- " << entry.path().filename().string() << "\n" << text.str();
  }
}

std::vector<std::string> Join(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

std::string LockstepBinary() { return Runfile("tools/lockstep"); }
std::string LockstepdBinary() { return Runfile("bridge/lockstepd"); }

const Trace& Trace::Get(const std::string& name) {
  static transport::TemporaryFolder folder;
  static std::map<std::string, Trace> unpacked;
  Trace& trace = unpacked[name];
  if (trace.folder.empty()) {
    const auto done = tools::RunToEnd(
        {"/bin/tar", "-xJf", Runfile("tests/data/traces/" + name + ".tar.xz"), "-C", folder.path()},
        kCommandTimeout);
    EXPECT_TRUE(done.ok() && done->exit_code == 0) << (done.ok() ? done->err : "no tar");
    trace.folder = folder.path() + "/" + name;
  }
  return trace;
}

std::string Trace::Step(uint64_t version) const {
  return absl::StrCat(folder, "/step", version, ".safetensors");
}

Cluster::Cluster(const Trace& trace) : trace_(trace) {}

Cluster::~Cluster() {
  samplers_.clear();
  bridge_.reset();
  if (::testing::Test::HasFailure()) PrintLogs(folder());
}

std::vector<std::string> Cluster::Environment() const {
  return {"LOCKSTEP_BRIDGE=" + address(), "NO_COLOR=1"};
}

void Cluster::StartBridge(std::vector<std::string> flags) {
  ProcessOptions options;
  options.stderr_path = folder() + "/bridge.log";
  auto started = ChildProcess::Start(
      Join({LockstepdBinary(), "--listen", address(), "--state-dir", folder() + "/state"}, flags),
      options);
  ASSERT_TRUE(started.ok()) << started.status();
  bridge_ = *std::move(started);
  ASSERT_TRUE(WaitUntil([](const json&) { return true; })) << "the bridge does not answer";
}

void Cluster::StartSampler(const std::string& name, const std::string& transport,
                           std::vector<std::string> flags) {
  ProcessOptions options;
  options.stdout_path = folder() + "/" + name + ".out.log";
  options.stderr_path = folder() + "/" + name + ".log";
  options.environment = Environment();
  auto started = ChildProcess::Start(
      Join({LockstepBinary(), "sampler", "--name", name, "--config", trace_.Config(), "--transport",
            transport, "--dump-on-live", folder() + "/" + name},
           flags),
      options);
  ASSERT_TRUE(started.ok()) << started.status();
  samplers_[name] = *std::move(started);
}

void Cluster::KillBridge() {
  bridge_->Signal(SIGKILL);
  ASSERT_TRUE(bridge_->Wait(kCommandTimeout).ok());
}

void Cluster::KillSampler(const std::string& name) {
  sampler(name).Signal(SIGKILL);
  ASSERT_TRUE(sampler(name).Wait(kCommandTimeout).ok());
}

Finished Cluster::Publish(uint64_t version, std::vector<std::string> flags) {
  return Cli(Join({"publish", "--checkpoint", trace_.Step(version), "--version",
                   absl::StrCat(version), "--config", trace_.Config()},
                  flags));
}

std::unique_ptr<ChildProcess> Cluster::StartPublish(uint64_t version,
                                                    std::vector<std::string> flags) {
  ProcessOptions options;
  options.stderr_path = absl::StrCat(folder(), "/publish-", version, ".log");
  options.environment = Environment();
  auto started =
      ChildProcess::Start(Join({LockstepBinary(), "publish", "--checkpoint", trace_.Step(version),
                                "--version", absl::StrCat(version), "--config", trace_.Config()},
                               flags),
                          options);
  EXPECT_TRUE(started.ok()) << started.status();
  return started.ok() ? *std::move(started) : nullptr;
}

Finished Cluster::Cli(std::vector<std::string> words, absl::Duration timeout) {
  words.insert(words.begin(), LockstepBinary());
  auto finished = tools::RunToEnd(words, timeout, Environment());
  if (finished.ok()) return *std::move(finished);
  ADD_FAILURE() << finished.status();
  return {-1, "", std::string(finished.status().message())};
}

json Cluster::Status() {
  const Finished status = Cli({"status", "-o", "json"});
  json value = json::parse(status.out, nullptr, false);
  return value.is_object() && value.contains("samplers") ? value : json();
}

json Cluster::SamplerStatus(const std::string& name) {
  const json status = Status();
  if (status.is_null()) return json();
  for (const json& sampler : status["samplers"]) {
    if (sampler["name"] == name) return sampler;
  }
  return json();
}

std::string Cluster::SamplerState(const std::string& name) {
  const json sampler = SamplerStatus(name);
  return sampler.is_null() ? "absent" : sampler["state"].get<std::string>();
}

bool Cluster::WaitLive(uint64_t version, int samplers) {
  const Finished waited =
      Cli({"wait", "--version", absl::StrCat(version), "--samplers", absl::StrCat(samplers),
           "--timeout", absl::StrCat(kLiveTimeoutSeconds)});
  EXPECT_EQ(waited.exit_code, 0) << waited.out << waited.err << Status().dump(1);
  return waited.exit_code == 0;
}

bool Cluster::WaitUntil(const std::function<bool(const json&)>& holds) {
  const absl::Time deadline = absl::Now() + absl::Seconds(kLiveTimeoutSeconds);
  json status;
  while (absl::Now() < deadline) {
    status = Status();
    if (!status.is_null() && holds(status)) return true;
  }
  ADD_FAILURE() << "waited " << kLiveTimeoutSeconds << " s; the last status was " << status.dump(1);
  return false;
}

bool Cluster::DumpEqualsPublished(const std::string& sampler, uint64_t version) {
  const Finished published = Cli({"digest", trace_.Step(version), "-o", "json"});
  const Finished served =
      Cli({"digest", absl::StrCat(folder(), "/", sampler, "/step", version, ".safetensors"), "-o",
           "json"});
  EXPECT_EQ(published.exit_code, 0) << published.err;
  EXPECT_EQ(served.exit_code, 0) << served.err;
  return !published.out.empty() && published.out == served.out;
}

}  // namespace lockstep::e2e
