#ifndef LOCKSTEP_TESTS_E2E_CLUSTER_H_
#define LOCKSTEP_TESTS_E2E_CLUSTER_H_

// A bridge, trainers and samplers as real processes on this machine, for tests that start,
// stop and kill them. Everything lies in a temporary folder that is gone with the cluster.
//
// Example:
//   Cluster cluster(Trace::Unpack("qwen3_5_dense"));
//   cluster.StartBridge();
//   cluster.StartSampler("s1", "shm");
//   EXPECT_EQ(cluster.Publish(0).exit_code, 0);
//   EXPECT_TRUE(cluster.WaitLive(0, 1));

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bridge/transport/temporary_folder_testing.h"
#include "nlohmann/json.hpp"
#include "tools/process/child_process.h"

namespace lockstep::e2e {

inline constexpr int kLiveTimeoutSeconds = 60;
inline constexpr absl::Duration kCommandTimeout = absl::Seconds(90);

// A recorded run, unpacked once per test program.
struct Trace {
  std::string folder;

  static const Trace& Get(const std::string& name);
  std::string Config() const { return folder + "/config.json"; }
  std::string Step(uint64_t version) const;
  std::string Rollouts() const { return folder + "/rollouts.jsonl"; }
};

std::string LockstepBinary();
std::string LockstepdBinary();

class Cluster {
 public:
  explicit Cluster(const Trace& trace);
  // Prints the logs of a failed test.
  ~Cluster();

  // Returns when it answers.
  void StartBridge(std::vector<std::string> flags = {});
  void StartSampler(const std::string& name, const std::string& transport,
                    std::vector<std::string> flags = {});
  tools::ChildProcess& bridge() { return *bridge_; }
  tools::ChildProcess& sampler(const std::string& name) { return *samplers_.at(name); }
  // kill -9, and waited for.
  void KillBridge();
  void KillSampler(const std::string& name);

  // `lockstep publish --checkpoint` of the trace's step, to its end.
  tools::Finished Publish(uint64_t version, std::vector<std::string> flags = {});
  // The same, in the background.
  std::unique_ptr<tools::ChildProcess> StartPublish(uint64_t version,
                                                    std::vector<std::string> flags = {});
  tools::Finished Cli(std::vector<std::string> words, absl::Duration timeout = kCommandTimeout);
  // Null when the bridge does not answer.
  nlohmann::json Status();
  nlohmann::json SamplerStatus(const std::string& name);
  std::string SamplerState(const std::string& name);

  // True when `samplers` samplers are live on the version within kLiveTimeoutSeconds.
  bool WaitLive(uint64_t version, int samplers);
  // Asks for the status until `holds` or kLiveTimeoutSeconds are over.
  bool WaitUntil(const std::function<bool(const nlohmann::json& status)>& holds);
  // What the sampler dumped of the version has the digests of the published file.
  bool DumpEqualsPublished(const std::string& sampler, uint64_t version);

  const std::string& folder() const { return folder_.path(); }
  std::string address() const { return "ipc://" + folder() + "/bridge.sock"; }
  const Trace& trace() const { return trace_; }

 private:
  std::vector<std::string> Environment() const;

  const Trace& trace_;
  transport::TemporaryFolder folder_;
  std::unique_ptr<tools::ChildProcess> bridge_;
  std::map<std::string, std::unique_ptr<tools::ChildProcess>> samplers_;
};

}  // namespace lockstep::e2e

#endif  // LOCKSTEP_TESTS_E2E_CLUSTER_H_
