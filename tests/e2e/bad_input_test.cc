// What users hand over by mistake or malice: each gives a reason, the right exit code, and
// leaves everything as it was.

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/e2e/checkpoint_edit.h"
#include "tests/e2e/cluster.h"

namespace lockstep::e2e {
namespace {

using nlohmann::json;
using tools::Finished;

constexpr int kUsage = 2, kUnreachable = 3, kRefused = 4;
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kNorm[] = "model.norm.weight";

class BadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.StartBridge();
    cluster_.StartSampler("s1", "shm");
    ASSERT_EQ(cluster_.Publish(0).exit_code, 0);
    ASSERT_TRUE(cluster_.WaitLive(0, 1));
  }

  // Every case ends here: version 0 is what it was, and version 1 can still be published.
  void TearDown() override {
    const json sampler = cluster_.SamplerStatus("s1");
    EXPECT_EQ(sampler["state"], "live") << sampler;
    EXPECT_EQ(sampler["live_version"], 0) << sampler;
    EXPECT_EQ(cluster_.Publish(1).exit_code, 0);
    EXPECT_TRUE(cluster_.WaitLive(1, 1));
    EXPECT_TRUE(cluster_.DumpEqualsPublished("s1", 1));
  }

  std::string Path(const std::string& name) const { return cluster_.folder() + "/" + name; }

  Finished PublishFile(const std::string& path, uint64_t version = 1) {
    return cluster_.Cli({"publish", "--checkpoint", path, "--version", absl::StrCat(version),
                         "--config", cluster_.trace().Config()});
  }

  // Refused or unusable, with every one of `words` in what it says.
  void ExpectRefused(const std::string& path, std::vector<std::string> words) {
    const Finished finished = PublishFile(path);
    EXPECT_TRUE(finished.exit_code == kUsage || finished.exit_code == kRefused)
        << finished.exit_code << finished.err;
    for (const std::string& word : words) {
      EXPECT_TRUE(absl::StrContains(finished.err, word)) << word << " is not in: " << finished.err;
    }
  }

  Cluster cluster_{Trace::Get("qwen3_5_dense")};
  Checkpoint good_ = Checkpoint::Read(cluster_.trace().Step(1));
};

TEST_F(BadInputTest, DamagedHeadersAreRefusedWithTheReason) {
  const std::string text = good_.header.dump();
  const std::string path = Path("bad.safetensors");

  good_.WriteRaw(path, text, uint64_t{1} << 40);
  ExpectRefused(path, {"header"});
  good_.WriteRaw(path, text, text.size() / 2);
  ExpectRefused(path, {"JSON"});
  good_.WriteRaw(path, "[" + text, text.size() + 1);
  ExpectRefused(path, {"header", "'{'"});
  std::ofstream(path, std::ios::trunc) << "short";
  ExpectRefused(path, {"bad.safetensors"});
  std::ofstream(path, std::ios::trunc).flush();
  ExpectRefused(path, {"bad.safetensors"});

  Checkpoint truncated = good_;
  truncated.data.resize(truncated.data.size() - 1);
  truncated.Write(path);
  ExpectRefused(path, {"bad.safetensors"});
}

TEST_F(BadInputTest, TensorsThatLieAreRefusedByName) {
  const std::string path = Path("bad.safetensors");
  const auto with = [&](const char* key, nlohmann::ordered_json value) {
    Checkpoint changed = good_;
    changed.header[kNorm][key] = std::move(value);
    changed.Write(path);
    ExpectRefused(path, {kNorm});
  };
  with("dtype", "BF17");
  with("shape", {uint64_t{1} << 40, uint64_t{1} << 40});
  with("shape", {7});
  with("data_offsets", {0, 256});  // overlaps the first tensor
  with("data_offsets", {0, good_.data.size() + 2});
  with("data_offsets", {100, 10});
}

TEST_F(BadInputTest, DuplicateNamesAreRefused) {
  const std::string text = good_.header.dump();
  const std::string norm = good_.header[kNorm].dump();
  const std::string twice =
      absl::StrCat(text.substr(0, text.size() - 1), ",\"", kNorm, "\":", norm, "}");
  good_.WriteRaw(Path("bad.safetensors"), twice, twice.size());
  ExpectRefused(Path("bad.safetensors"), {kNorm, "twice"});
}

TEST_F(BadInputTest, ACheckpointOfAnotherConfigIsRefused) {
  ExpectRefused(Trace::Get("glm_moe_dsa").Step(1), {"config"});
}

TEST_F(BadInputTest, MissingAndExtraTensorsAreRefusedByName) {
  Checkpoint missing = good_;
  missing.Remove(kNorm);
  missing.Write(Path("missing.safetensors"));
  ExpectRefused(Path("missing.safetensors"), {kNorm});

  Checkpoint extra = good_;
  extra.Add("model.surprise.weight", "BF16", {2}, std::string(4, '\1'));
  extra.Write(Path("extra.safetensors"));
  ExpectRefused(Path("extra.safetensors"), {"model.surprise.weight"});
}

TEST_F(BadInputTest, ATiedHeadThatDiffersIsRefused) {
  Checkpoint untied = good_;
  std::string head = untied.BytesOf(kEmbedding);
  head[0] = static_cast<char>(head[0] ^ 1);
  const std::vector<uint64_t> shape = untied.header[kEmbedding]["shape"];
  untied.Add("lm_head.weight", "BF16", shape, head);
  untied.Write(Path("untied.safetensors"));
  ExpectRefused(Path("untied.safetensors"), {"lm_head.weight", kEmbedding});
}

TEST_F(BadInputTest, AVersionThatGoesBackwardsIsRefused) {
  ASSERT_EQ(PublishFile(cluster_.trace().Step(0), 0).exit_code, 0) << "the same bytes again";
  const Finished other = PublishFile(cluster_.trace().Step(1), 0);
  EXPECT_EQ(other.exit_code, kRefused) << other.err;
  EXPECT_TRUE(absl::StrContains(other.err, "0")) << other.err;
}

TEST_F(BadInputTest, AnUnreadableLineIsRefusedByNumberAndTheRestGoOn) {
  std::ifstream rollouts(cluster_.trace().Rollouts());
  std::string first, second;
  std::getline(rollouts, first);
  std::getline(rollouts, second);
  const std::string path = Path("rollouts.jsonl");
  std::ofstream(path) << first << "\n{\"policy_version\": 0, \"tok\n" << second << "\n";
  const Finished submitted = cluster_.Cli({"rollout", "submit", path, "-o", "json"});
  EXPECT_NE(submitted.exit_code, 0);
  int admitted = 0;
  for (const absl::string_view line : absl::StrSplit(submitted.out, '\n', absl::SkipEmpty())) {
    const json decision = json::parse(line, nullptr, false);
    ASSERT_TRUE(decision.is_object()) << line;
    admitted += decision["decision"] == "admit";
  }
  EXPECT_EQ(admitted, 2) << submitted.out << submitted.err;
  EXPECT_TRUE(absl::StrContains(submitted.out + submitted.err, "2")) << submitted.err;
}

TEST_F(BadInputTest, NoBridgeIsExitCodeThreeWithWhatToDo) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status"},
                                                {"versions"},
                                                {"samplers"},
                                                {"events"},
                                                {"explain", "version", "0"},
                                                {"wait", "--version", "0", "--timeout", "1"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--bridge", "ipc://" + Path("nobody.sock")});
    const Finished finished = cluster_.Cli(all);
    EXPECT_EQ(finished.exit_code, kUnreachable) << words[0] << ": " << finished.err;
    EXPECT_TRUE(absl::StrContains(finished.err, "lockstepd")) << finished.err;
  }
}

class NanTest : public ::testing::Test {};

TEST_F(NanTest, NanWeightsAreAllowedCountedAndShown) {
  Cluster cluster(Trace::Get("qwen3_5_dense"));
  cluster.StartBridge();
  cluster.StartSampler("s1", "tcp");
  Checkpoint checkpoint = Checkpoint::Read(cluster.trace().Step(0));
  checkpoint.Overwrite(kEmbedding, 0, std::string("\xC0\x7F\xC1\xFF\x80\x7F", 6));  // NaN NaN inf
  const std::string path = cluster.folder() + "/nan.safetensors";
  checkpoint.Write(path);
  const Finished published = cluster.Cli(
      {"publish", "--checkpoint", path, "--version", "3", "--config", cluster.trace().Config()});
  EXPECT_EQ(published.exit_code, 0) << published.err;
  ASSERT_TRUE(cluster.WaitLive(3, 1));
  const json status = cluster.Status();
  EXPECT_EQ(status["versions"][0]["nan_elements"], 2) << status.dump(1);
  EXPECT_TRUE(absl::StrContains(cluster.Cli({"status"}).out, "NaN"));
}

}  // namespace
}  // namespace lockstep::e2e
