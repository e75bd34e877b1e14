#include "tools/cli/bridge_view.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tools/cli/bridge_json.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

StatusReply MakeStatus() {
  StatusReply status;
  status.run = "demo";
  status.contract_short = "qwen3_5_dense#9c1e0a44";
  status.trainer = TrainerStatus{"trainer", 1, true, "qwen3_5_dense#9c1e0a44", "actor"};
  VersionStatus version;
  version.version = 3;
  version.state = "live";
  version.samplers_live = 1;
  status.versions = {version};
  SamplerStatus live;
  live.name = "s1";
  live.state = "live";
  live.live_version = 3;
  live.transport = "shm";
  live.components_verified = live.components_total = 18;
  live.connected = true;
  SamplerStatus refused;
  refused.name = "s3";
  refused.state = "refused";
  refused.reason = "contract_mismatch: two programs";
  status.samplers = {live, refused};
  status.rollouts_admitted = 255;
  status.rollouts_refused = {{"logprob_mismatch", 1}};
  return status;
}

TEST(ViewTest, FromNothingEverythingIsAChangeAndFromTheSameNothingIs) {
  const StatusReply status = MakeStatus();
  EXPECT_EQ(StatusChanges({}, status),
            (std::vector<std::string>{
                "trainer trainer: connected, epoch 1, contract qwen3_5_dense#9c1e0a44",
                "version 3: live on 1 sampler",
                "sampler s1: live on version 3, 18/18 components equal, over shm",
                "sampler s3: refused: contract_mismatch: two programs",
                "rollouts: 255 admitted, 1 refused (logprob_mismatch 1), 0 pending"}));
  EXPECT_TRUE(StatusChanges(status, status).empty());
}

TEST(ViewTest, OnlyWhatChangedHasALine) {
  const StatusReply before = MakeStatus();
  StatusReply now = before;
  now.samplers[0].state = "quarantined";
  now.samplers[0].live_version.reset();
  now.samplers[0].reason = "digest_mismatch: a byte";
  now.alarms = {"sampler 's1' is quarantined"};
  now.versions.clear();
  EXPECT_EQ(StatusChanges(before, now),
            (std::vector<std::string>{"version 3: forgotten",
                                      "sampler s1: quarantined, 18/18 components equal, over shm: "
                                      "digest_mismatch: a byte",
                                      "alarm: sampler 's1' is quarantined"}));
  now.samplers[0] = before.samplers[0];
  now.versions = before.versions;
  EXPECT_EQ(StatusChanges(now, before),
            std::vector<std::string>{"alarm: sampler 's1' is quarantined: over"});
}

TEST(ViewTest, BytesHaveAUnitThatFits) {
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(2'146'712), "2.1 MB");
  EXPECT_EQ(BytesText(999'999'999), "1.0 GB");
}

TEST(JsonTest, StatusCarriesVersionsSamplersAndRolloutsByReason) {
  const json status = StatusJson(MakeStatus());
  EXPECT_EQ(status["run"], "demo");
  EXPECT_EQ(status["contract"], "qwen3_5_dense#9c1e0a44");
  ASSERT_TRUE(status["versions"].is_array());
  EXPECT_EQ(status["versions"][0]["version"], 3);
  EXPECT_TRUE(status["versions"][0]["rollback_of"].is_null());
  const json& s1 = status["samplers"][0];
  EXPECT_EQ(s1["name"], "s1");
  EXPECT_EQ(s1["state"], "live");
  EXPECT_EQ(s1["live_version"], 3);
  EXPECT_EQ(s1["transport"], "shm");
  EXPECT_EQ(s1["components_verified"], 18);
  EXPECT_EQ(s1["components_total"], 18);
  EXPECT_TRUE(status["samplers"][1]["live_version"].is_null());
  EXPECT_EQ(status["samplers"][1]["reason"], "contract_mismatch: two programs");
  EXPECT_EQ(status["rollouts"]["admitted"], 255);
  EXPECT_EQ(status["rollouts"]["refused"], json({{"logprob_mismatch", 1}}));
}

TEST(JsonTest, ADecisionHasCodesAsReasonsAndNumbersOnlyWhereTokensWereCompared) {
  Decision decision;
  decision.rollout_id = "r";
  decision.kind = DecisionKind::kRefuse;
  decision.reasons = {{RefusalCode::kLogprobMismatch, "token 2", "bits differ"}};
  decision.spans = {{1, 0, 5}};
  decision.compared = true;
  decision.k3 = 7e-15;
  decision.mismatched_tokens = 1;
  decision.mismatches = {{2, 0xbf000000, 0xbf000001}};
  json out = DecisionJson(decision);
  EXPECT_EQ(out["decision"], "refuse");
  EXPECT_EQ(out["reasons"], json::array({"logprob_mismatch"}));
  EXPECT_EQ(out["refusals"][0]["code"], "logprob_mismatch");
  EXPECT_EQ(out["spans"], json::array({json::array({1, 0, 5})}));
  EXPECT_EQ(out["k3"], 7e-15);
  EXPECT_EQ(out["mismatched_tokens"], 1);
  EXPECT_EQ(out["mismatches"][0]["sampler_bits"], "bf000000");
  decision.compared = false;
  decision.kind = DecisionKind::kPending;
  out = DecisionJson(decision);
  EXPECT_EQ(out["decision"], "pending");
  EXPECT_TRUE(out["k3"].is_null());
  EXPECT_TRUE(out["mismatched_tokens"].is_null());
}

TEST(JsonTest, TextThatIsNotUtf8IsReplaced) {
  SamplerStatus sampler;
  sampler.name = "\xff";
  StatusReply status;
  status.samplers = {sampler};
  EXPECT_NE(JsonLine(StatusJson(status)).find("\xEF\xBF\xBD"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::tools
