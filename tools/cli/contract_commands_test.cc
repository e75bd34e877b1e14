#include "tools/cli/contract_commands.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/run_testing.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;

Ran Try(const std::vector<std::string>& words) { return RunCommand(words, ContractCommands()); }

std::string Config(absl::string_view name) {
  return absl::StrCat("tests/golden/data/configs/", name, ".json");
}

TEST(ContractResolveTest, AnswersOneJsonObjectWithEveryField) {
  const Ran ran = Try({"contract", "resolve", Config("trace_qwen3_5_dense"), "-o", "json"});
  EXPECT_EQ(ran.code, kExitConverged) << ran.err;
  const json answer = ran.Json();
  ASSERT_TRUE(answer.is_object()) << ran.out;
  EXPECT_EQ(answer["family"], "qwen3_5_dense");
  EXPECT_EQ(answer["contract_id"].get<std::string>().size(), 64u);
  EXPECT_EQ(answer["sites"]["dense_mlp"]["program"], "swiglu/one_round_fp32@v1");
  EXPECT_TRUE(answer["sites"]["dense_mlp"].contains("geometry"));
  EXPECT_TRUE(answer["sites"]["dense_mlp"].contains("realisation"));
  EXPECT_TRUE(answer["local_partial"].is_null());
  EXPECT_EQ(answer["lora"], "none");
  EXPECT_EQ(answer["level"], "tokens");
  EXPECT_EQ(answer["refusals"], json::array());
}

TEST(ContractResolveTest, FamilyNoneIsAnAnswerUntilExactnessIsDemanded) {
  const std::string config = Config("LlamaConfig");
  EXPECT_EQ(Try({"contract", "resolve", config}).code, kExitConverged);
  const Ran ran = Try({"contract", "resolve", config, "--exact", "-o", "json"});
  EXPECT_EQ(ran.code, kExitRefused);
  EXPECT_EQ(ran.Json()["family"], "none") << ran.out;
  EXPECT_EQ(ran.Json()["refusals"][0]["code"], "no_exact_family");
  EXPECT_TRUE(ran.Json()["contract_id"].is_null());
  EXPECT_TRUE(absl::StrContains(ran.err, "no_exact_family")) << ran.err;
}

TEST(ContractResolveTest, ARefusalNamesTheKeyAndStillAnswersOnStandardOutput) {
  const Ran ran = Try({"contract", "resolve", Config("GptOssConfig"), "--exact", "-o", "json"});
  EXPECT_EQ(ran.code, kExitRefused);
  ASSERT_FALSE(ran.Json()["refusals"].empty()) << ran.out;
  for (const json& refusal : ran.Json()["refusals"]) {
    EXPECT_TRUE(refusal["code"].is_string() && refusal["key"].is_string() &&
                refusal["message"].is_string());
  }
  const Ran table = Try({"contract", "resolve", Config("GptOssConfig"), "--exact"});
  EXPECT_EQ(table.code, kExitRefused);
  EXPECT_EQ(table.out, "");
}

TEST(ContractResolveTest, BrokenConfigsAreRefusedWithAnObjectAndMissingFilesAreUsage) {
  const TestFolder folder;
  for (const char* text :
       {"", "{", "[]", "7", "{\"hidden_act\": 1}", "\xff\xfe", "{\"a\":1,\"a\":2}"}) {
    const Ran ran =
        Try({"contract", "resolve", folder.Write("c.json", text), "--exact", "-o", "json"});
    EXPECT_EQ(ran.code, kExitRefused) << text << ran.err;
    EXPECT_TRUE(ran.Json()["family"].is_string()) << ran.out;
    EXPECT_FALSE(ran.Json()["refusals"].empty());
  }
  const Ran missing = Try({"contract", "resolve", folder.Path("absent.json")});
  EXPECT_EQ(missing.code, kExitUsage);
  EXPECT_TRUE(absl::StrContains(missing.err, "absent.json")) << missing.err;
}

TEST(ContractResolveTest, UnreadableFlagsAreUsage) {
  const std::string config = Config("trace_glm_moe_dsa");
  EXPECT_EQ(Try({"contract", "resolve", config, "--lane", "other"}).code, kExitUsage);
  EXPECT_EQ(Try({"contract", "resolve", config, "--tp", "-1"}).code, kExitUsage);
  EXPECT_EQ(Try({"contract", "resolve"}).code, kExitUsage);
  EXPECT_EQ(Try({"contract", "resolve", config, config}).code, kExitUsage);
}

TEST(ContractResolveTest, LaneAndLocalPartialSelectAnotherContract) {
  const std::string config = Config("trace_glm_moe_dsa");
  const Ran v2 = Try({"contract", "resolve", config, "--exact", "-o", "json"});
  const Ran v3 =
      Try({"contract", "resolve", config, "--exact", "--local-partial", "v3", "-o", "json"});
  EXPECT_EQ(v2.Json()["family"], "glm52") << v2.err;
  EXPECT_EQ(v2.Json()["local_partial"]["policy"], "local-partial v2");
  EXPECT_EQ(v3.Json()["local_partial"]["policy"], "local-partial v3");
  EXPECT_NE(v2.Json()["contract_id"], v3.Json()["contract_id"]);
  const Ran lora = Try({"contract", "resolve", config, "--lane", "active_lora", "-o", "json"});
  EXPECT_EQ(lora.code, kExitConverged) << lora.err;
  EXPECT_EQ(lora.Json()["lora"]["kind"], "active@v2");
  const Ran table = Try({"contract", "resolve", config, "--exact"});
  EXPECT_TRUE(absl::StrContains(table.out, "moe_fold/bf16_tree@v1")) << table.out;
}

TEST(ContractResolveTest, TheStampedConfigResolvesToTheSameContract) {
  const TestFolder folder;
  const Ran asked = Try({"contract", "resolve", Config("trace_glm_moe_dsa"), "--exact",
                         "--stamped-config", folder.Path("stamped.json"), "-o", "json"});
  ASSERT_EQ(asked.code, kExitConverged) << asked.err;
  const Ran again = Try({"contract", "resolve", folder.Path("stamped.json"), "-o", "json"});
  EXPECT_EQ(again.Json()["contract_id"], asked.Json()["contract_id"]);
  EXPECT_EQ(folder.Names(), std::vector<std::string>{"stamped.json"});
}

TEST(ContractDiffTest, EqualIsZeroAndADifferenceIsOneWithEveryPart) {
  const TestFolder folder;
  const std::string config = Config("trace_glm_moe_dsa");
  const std::string v2 =
      folder.Write("v2.json", Try({"contract", "resolve", config, "--exact", "-o", "json"}).out);
  const std::string v3 = folder.Write(
      "v3.json",
      Try({"contract", "resolve", config, "--exact", "--local-partial", "v3", "-o", "json"}).out);
  EXPECT_EQ(Try({"contract", "diff", v2, v2}).code, kExitConverged);
  EXPECT_EQ(Try({"contract", "diff", v2, config, "--exact"}).code, kExitConverged)
      << "a resolved contract against the config it came from";

  const Ran ran = Try({"contract", "diff", v3, v2, "-o", "json"});
  EXPECT_EQ(ran.code, kExitDegraded) << ran.err;
  EXPECT_EQ(ran.Json()["equal"], false);
  ASSERT_FALSE(ran.Json()["differences"].empty());
  for (const json& difference : ran.Json()["differences"]) {
    for (const char* key : {"part", "trainer", "sampler", "changes", "remedy"}) {
      EXPECT_TRUE(difference[key].is_string()) << key;
    }
  }
  const Ran table = Try({"contract", "diff", v3, v2});
  EXPECT_TRUE(absl::StrContains(table.out, "local-partial v3")) << table.out;
  EXPECT_TRUE(absl::StrContains(table.out, "to do")) << table.out;
}

TEST(ContractDiffTest, ASideWithoutAContractIsRefused) {
  const TestFolder folder;
  const Ran ran = Try({"contract", "diff", Config("trace_qwen3_5_dense"),
                       folder.Write("b.json", R"({"format": "lockstep contract@v1"})")});
  EXPECT_EQ(ran.code, kExitRefused);
  EXPECT_TRUE(absl::StrContains(ran.err, "b.json")) << ran.err;
  EXPECT_EQ(Try({"contract", "diff", Config("trace_qwen3_5_dense")}).code, kExitUsage);
}

TEST(ContractShowTest, EveryKindOfIdentifierIsKnown) {
  for (const auto& [id, what] : std::vector<std::pair<std::string, std::string>>{
           {"swiglu/one_round_fp32@v1", "forward program"},
           {"lora/active@v1", "retired program"},
           {"silu/sm90_triton@v1", "SiLU realisation"},
           {"local-partial v3", "local-partial policy"},
           {"v2", "local-partial policy"},
           {"glm52_exact_tp16_shared_expert_rank1_qlora_v1", "adapter lane, superseded"},
           {"glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2", "local-partial policy"},
           {"glm52", "contract family"}}) {
    const Ran ran = Try({"contract", "show", id, "-o", "json"});
    EXPECT_EQ(ran.code, kExitConverged) << id << ran.err;
    EXPECT_EQ(ran.Json()["what"], what) << id;
    EXPECT_TRUE(ran.Json()["aliases"].is_array());
    EXPECT_EQ(Try({"contract", "show", id}).code, kExitConverged);
  }
}

TEST(ContractShowTest, AFileIsShownInFullAndAnUnknownIdNamesTheNearest) {
  const Ran file = Try({"contract", "show", Config("trace_qwen3_5_dense"), "-o", "json"});
  EXPECT_EQ(file.Json()["format"], "lockstep contract@v1") << file.err;
  EXPECT_TRUE(file.Json()["contract_id"].is_string());
  const Ran unknown = Try({"contract", "show", "swiglu/one_round@v1"});
  EXPECT_EQ(unknown.code, kExitUsage);
  EXPECT_TRUE(absl::StrContains(unknown.err, "swiglu/one_round_fp32@v1")) << unknown.err;
  const Ran digest = Try({"contract", "show", "glm52/local-partial@v2#9c1e0a44"});
  EXPECT_EQ(digest.code, kExitUsage);
  EXPECT_TRUE(absl::StrContains(digest.err, "digest of a contract")) << digest.err;
}

TEST(ContractAliasesTest, ListsTheFieldStringsWithWhatTheyMean) {
  const json aliases = Try({"contract", "aliases", "-o", "json"}).Json()["aliases"];
  const auto has = [&](absl::string_view alias, absl::string_view id) {
    for (const json& row : aliases) {
      if (row["alias"] == std::string(alias)) return row["id"] == std::string(id);
    }
    return false;
  };
  EXPECT_TRUE(has("glm52_routed_final_scaled_then_shared_ep_slice_bf16_v2", "local-partial v2"));
  EXPECT_TRUE(
      has("glm52_routed_final_scaled_then_shared_ep_slice_fp32_then_bf16_v3", "local-partial v3"));
  EXPECT_EQ(Try({"contract", "aliases"}).code, kExitConverged);
}

}  // namespace
}  // namespace lockstep::tools
