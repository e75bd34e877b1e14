// What bridge commands say and exit with before, or without, a bridge.

#include "tools/cli/bridge_commands.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/bridge_sampler.h"
#include "tools/cli/bridge_tables.h"
#include "tools/cli/exit_codes.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kDense[] = R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 8,
  "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 4})";

constexpr char kQwen[] = R"({"model_type": "qwen3_5_text", "hidden_act": "silu", "hidden_size": 8,
  "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 4, "rms_norm_eps": 1e-6})";

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

class CommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "lockstep-cli-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("LOCKSTEP_BRIDGE", absl::StrCat("ipc://", folder_, "/bridge.sock").c_str(), 1);
    Write("config.json", kDense);
    Write("qwen.json", kQwen);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(folder_, "/", name); }
  void Write(absl::string_view name, absl::string_view text) {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  static Ran Run(std::vector<std::string> words) {
    std::ostringstream out, err;
    Io io{out, err};
    Ran ran;
    ran.code = RunCli(words, BridgeCommands(), io);
    ran.out = out.str();
    ran.err = err.str();
    return ran;
  }

  std::string folder_;
};

TEST_F(CommandsTest, WithoutABridgeEveryCommandIsUnreachableAndSaysWhatToDo) {
  Write("rollouts.jsonl", "{\"policy_version\": 0, \"tokens\": [1]}\n");
  const std::vector<std::vector<std::string>> commands = {
      {"status"},
      {"versions", "-o", "json"},
      {"samplers"},
      {"watch"},
      {"events"},
      {"events", "--follow"},
      {"explain", "version", "1"},
      {"wait", "--version", "1", "--timeout", "1"},
      {"rollback"},
      {"retire", "1"},
      {"quarantine", "release", "s1"},
      {"rollout", "submit", Path("rollouts.jsonl")},
      {"sampler", "--name", "s1", "--config", Path("config.json")}};
  for (const std::vector<std::string>& words : commands) {
    const Ran ran = Run(words);
    EXPECT_EQ(ran.code, kExitUnreachable) << words[0] << ": " << ran.err;
    EXPECT_TRUE(ran.out.empty()) << words[0] << ": " << ran.out;
    EXPECT_TRUE(absl::StrContains(ran.err, "bridge")) << words[0] << ": " << ran.err;
  }
}

TEST_F(CommandsTest, AWrongCommandLineIsUsageAndNamesWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"wait", "--version", "1"}, "--timeout"},
      {{"wait", "--timeout", "1"}, "--version"},
      {{"wait", "--version", "x", "--timeout", "1"}, "--version"},
      {{"wait", "--version", "1", "--timeout", "-1"}, "--timeout"},
      {{"explain", "weather", "1"}, "version N, sampler NAME or rollout ID"},
      {{"explain", "version"}, "expected 2 arguments"},
      {{"rollout", "submit", Path("absent.jsonl")}, "absent.jsonl"},
      {{"rollout", "submit", Path("config.json"), "--level", "all"}, "--level"},
      {{"publish", "--config", Path("config.json")}, "--checkpoint FILE"},
      {{"publish", "--config", Path("config.json"), "--checkpoint", "x"}, "--version"},
      {{"publish", "--version", "1", "--checkpoint", "x"}, "--config"},
      {{"publish", "--version", "1", "--checkpoint", Path("absent.safetensors"), "--config",
        Path("config.json")},
       "absent.safetensors"},
      {{"publish", "--watch-dir", Path("absent"), "--config", Path("config.json")}, "absent"},
      {{"sampler", "--config", Path("config.json")}, "--name"},
      {{"sampler", "--name", "s", "--config", Path("absent.json")}, "absent.json"},
      {{"sampler", "--name", "s", "--config", Path("config.json"), "--transport", "smoke"},
       "--transport"},
      {{"status", "--key", "mine.key"}, "--server-key"},
      {{"status", "--bridge", "smoke://signal"}, "ipc://"}};
  for (const auto& [words, says] : commands) {
    const Ran ran = Run(words);
    EXPECT_EQ(ran.code, kExitUsage) << ran.err;
    EXPECT_TRUE(absl::StrContains(ran.err, says)) << says << " is not in: " << ran.err;
  }
}

TEST_F(CommandsTest, ACheckpointThatIsNoneIsAnInputErrorOneOfAnotherConfigIsRefused) {
  Write("truncated.safetensors", std::string("\x10\0\0\0\0\0\0\0{}", 10));
  std::string header =
      R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[4,6],"data_offsets":[0,48]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  Write("other.safetensors", file + header + std::string(48, '\0'));
  const auto publish = [&](absl::string_view name) {
    return Run(
        {"publish", "--checkpoint", Path(name), "--version", "1", "--config", Path("qwen.json")});
  };
  const Ran truncated = publish("truncated.safetensors");
  EXPECT_EQ(truncated.code, kExitUsage) << truncated.err;
  EXPECT_TRUE(absl::StrContains(truncated.err, "truncated")) << truncated.err;
  const Ran other = publish("other.safetensors");
  EXPECT_EQ(other.code, kExitRefused) << other.err;
  EXPECT_TRUE(absl::StrContains(other.err, "manifest_mismatch")) << other.err;
}

TEST_F(CommandsTest, AContractThatTheConfigDoesNotHaveIsRefusedWithTheReason) {
  const Ran ran = Run({"sampler", "--name", "s", "--config", Path("config.json"), "--exact"});
  EXPECT_EQ(ran.code, kExitRefused) << ran.err;
  EXPECT_TRUE(absl::StrContains(ran.err, "no_exact_family")) << ran.err;
}

TEST(SamplerVerdictTest, RefusedFromTheStartLeavesRefusedLaterStays) {
  SamplerState refused{"refused", std::nullopt, "", {{RefusalCode::kContractMismatch, "", ""}}};
  SamplerVerdict fresh(/*stay=*/false);
  EXPECT_FALSE(fresh.Note({"waiting"}));
  EXPECT_TRUE(fresh.Note(refused));
  EXPECT_EQ(fresh.exit_code(), kExitRefused);

  SamplerVerdict agreed(/*stay=*/false);
  EXPECT_FALSE(agreed.Note({"live", 3}));
  EXPECT_FALSE(agreed.Note(refused));
  EXPECT_EQ(agreed.exit_code(), kExitRefused) << "when it is stopped now";

  SamplerVerdict staying(/*stay=*/true);
  EXPECT_FALSE(staying.Note(refused));
  EXPECT_FALSE(staying.Note({"live", 3}));
  EXPECT_EQ(staying.exit_code(), kExitConverged);
}

TEST(SamplerVerdictTest, ABridgeThatShutsDownIsWaitedFor) {
  SamplerVerdict verdict(/*stay=*/false);
  EXPECT_FALSE(verdict.Note({"refused", std::nullopt, "", {{RefusalCode::kShuttingDown, "", ""}}}));
}

TEST(SamplerVerdictTest, AnotherProcessOfTheSameNameEndsItAQuarantineDoesNot) {
  SamplerVerdict verdict(/*stay=*/true);
  EXPECT_FALSE(verdict.Note({"live", 3}));
  EXPECT_FALSE(verdict.Note({"quarantined"}));
  EXPECT_EQ(verdict.exit_code(), kExitDegraded);
  EXPECT_TRUE(verdict.Note({"gone", std::nullopt, "", {{RefusalCode::kStaleIncarnation, "", ""}}}));
  EXPECT_EQ(verdict.exit_code(), kExitRefused);
}

TEST(TablesTest, AStatusSaysWhoIsLiveOnWhatAndHowToLearnMore) {
  StatusReply status;
  status.run = "demo";
  SamplerStatus sampler;
  sampler.name = "s3";
  sampler.state = "refused";
  sampler.reason = "contract_mismatch: a long sentence";
  status.samplers = {sampler};
  std::ostringstream out, err;
  Io io{out, err};
  std::string text = StatusText(status, io);
  EXPECT_TRUE(absl::StrContains(text, "contract_mismatch")) << text;
  EXPECT_FALSE(absl::StrContains(text, "a long sentence")) << text;
  EXPECT_TRUE(absl::StrContains(text, "lockstep explain sampler s3")) << text;
  EXPECT_FALSE(absl::StrContains(text, "\x1b")) << "no colour unless asked";
  io.format = Format::kWide;
  EXPECT_TRUE(absl::StrContains(SamplersText(status, io), "a long sentence"));
}

TEST(TablesTest, TextIsBrokenAtSpaces) {
  EXPECT_EQ(Wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(Wrap("unbreakable", 3), "unbreakable");
  EXPECT_EQ(Wrap("", 3), "");
}

}  // namespace
}  // namespace lockstep::tools
