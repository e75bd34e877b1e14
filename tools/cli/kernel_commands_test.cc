// `kernel run` from the command line on every recorded vector, what it refuses, what `kernel list`
// claims, and the selftest.

#include "tools/cli/kernel_commands.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/cli/checkpoint_file.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/kernel_programs.h"

namespace lockstep::tools {
namespace {

const std::string kVectors = "tests/golden/data/vectors/";

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

Ran RunCommand(const std::vector<std::string>& words) {
  std::ostringstream out, err;
  Io io{out, err};
  const int code = RunCli(words, KernelCommands(), io);
  return {code, out.str(), err.str()};
}

std::string Scratch(const std::string& name) { return testing::TempDir() + "/" + name; }

std::vector<uint8_t> BytesOfTensor(const CheckpointFile& file, const std::string& name) {
  const SafetensorsTensor* tensor = file.Find(name);
  if (tensor == nullptr) return {};
  const absl::Span<const uint8_t> bytes = file.Bytes(*tensor);
  return {bytes.begin(), bytes.end()};
}

std::vector<float> Floats(const CheckpointFile& file, const std::string& name) {
  const std::vector<uint8_t> bytes = BytesOfTensor(file, name);
  std::vector<float> values(bytes.size() / sizeof(float));
  memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The entries of index.json, as command lines.
struct Vector {
  std::string file;
  std::string program;
  std::vector<std::string> words;
};

std::vector<Vector> Vectors() {
  std::ifstream in(kVectors + "index.json");
  const nlohmann::json index = nlohmann::json::parse(in, nullptr, false);
  std::vector<Vector> vectors;
  for (const nlohmann::json& entry : index) {
    Vector v;
    v.file = entry.value("file", "");
    v.program = entry.value("program", "");
    v.words = {"kernel", "run", entry.value("op", ""), "--program", v.program};
    if (entry.contains("realisation")) {
      v.words.insert(v.words.end(), {"--realisation", entry.value("realisation", "")});
    }
    for (const auto& [name, value] : entry["options"].items()) {
      v.words.push_back("--" + name);
      if (!value.is_boolean()) {
        v.words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    vectors.push_back(std::move(v));
  }
  return vectors;
}

Ran RunOn(std::vector<std::string> words, const std::string& input, const std::string& output) {
  words.insert(words.end(), {"--input", input, "--output", output});
  return RunCommand(words);
}

TEST(KernelRunTest, EveryRecordedVectorComesOutOfTheCommandLineByteForByte) {
  const std::vector<Vector> vectors = Vectors();
  ASSERT_GE(vectors.size(), 28u);
  for (const Vector& v : vectors) {
    const std::string output = Scratch("out_" + v.file);
    const Ran ran = RunOn(v.words, kVectors + v.file, output);
    ASSERT_EQ(ran.code, kExitConverged) << v.file << ": " << ran.err;
    const absl::StatusOr<CheckpointFile> want = CheckpointFile::Open(kVectors + v.file);
    const absl::StatusOr<CheckpointFile> got = CheckpointFile::Open(output);
    ASSERT_TRUE(want.ok() && got.ok()) << v.file;
    size_t compared = 0;
    for (const SafetensorsTensor& tensor : want->header().tensors) {
      if (!absl::StartsWith(tensor.spec.name, "want_")) continue;
      const SafetensorsTensor* out = got->Find(tensor.spec.name.substr(5));
      ASSERT_NE(out, nullptr) << v.file << " " << tensor.spec.name;
      EXPECT_EQ(out->spec.dtype, tensor.spec.dtype) << v.file;
      EXPECT_EQ(out->spec.shape, tensor.spec.shape) << v.file;
      EXPECT_EQ(BytesOfTensor(*got, out->spec.name), BytesOfTensor(*want, tensor.spec.name))
          << v.file << " " << tensor.spec.name;
      ++compared;
    }
    EXPECT_EQ(compared, got->header().tensors.size()) << v.file;
    std::filesystem::remove(output);
  }
}

TEST(KernelListTest, ClaimsAsManyVectorsAsThereAreOfEveryProgram) {
  std::map<std::string, int> recorded;
  for (const Vector& v : Vectors()) ++recorded[v.program];
  for (const KernelProgram& program : KernelPrograms()) {
    EXPECT_EQ(program.vectors, recorded[std::string(program.id)]) << program.id;
    recorded.erase(std::string(program.id));
  }
  EXPECT_TRUE(recorded.empty()) << recorded.begin()->first << " is in no row";
}

// Writes one tensor of a golden file under another name.
void WriteInput(const std::string& golden, const std::map<std::string, std::string>& names,
                const std::string& path) {
  const absl::StatusOr<CheckpointFile> file = CheckpointFile::Open("tests/golden/data/" + golden);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<TensorToWrite> tensors;
  for (const auto& [from, to] : names) {
    const SafetensorsTensor* tensor = file->Find(from);
    ASSERT_NE(tensor, nullptr) << from;
    tensors.push_back({tensor->spec, file->Bytes(*tensor)});
    tensors.back().spec.name = to;
  }
  ASSERT_TRUE(WriteCheckpoint(path, tensors, {}).ok());
}

TEST(KernelListTest, SwigluDiffersInAsManyOutputsOfAProductionRunAsItClaims) {
  const std::string golden = "glm52_tp16_shared_expert.safetensors";
  const std::string input = Scratch("gate_up.safetensors");
  WriteInput(golden, {{"x_512x256", "gate_up"}}, input);
  const absl::StatusOr<CheckpointFile> recorded =
      CheckpointFile::Open("tests/golden/data/" + golden);
  ASSERT_TRUE(recorded.ok());
  std::map<std::string, std::vector<uint8_t>> outs;
  for (const auto& [program, name] : {std::pair("swiglu/one_round_fp32@v1", "one_512x256"),
                                      {"swiglu/two_round@v1", "two_512x256"}}) {
    const std::string output = Scratch("swiglu.safetensors");
    const Ran ran = RunOn(
        {"kernel", "run", "swiglu", "--program", program, "--realisation", "silu/sm90_triton@v1"},
        input, output);
    ASSERT_EQ(ran.code, kExitConverged) << ran.err;
    const absl::StatusOr<CheckpointFile> got = CheckpointFile::Open(output);
    ASSERT_TRUE(got.ok());
    outs[program] = BytesOfTensor(*got, "out");
    EXPECT_EQ(outs[program], BytesOfTensor(*recorded, name));
  }
  const std::vector<uint8_t>& one = outs["swiglu/one_round_fp32@v1"];
  const std::vector<uint8_t>& two = outs["swiglu/two_round@v1"];
  ASSERT_EQ(one.size(), two.size());
  int differing = 0;
  for (size_t i = 0; i < one.size(); i += 2) differing += memcmp(&one[i], &two[i], 2) != 0;
  int claims = 0;
  for (const KernelProgram& program : KernelPrograms()) {
    if (program.outputs == 0) continue;
    ++claims;
    EXPECT_EQ(program.differing, differing) << program.id;
    EXPECT_EQ(program.outputs, static_cast<int>(one.size() / 2)) << program.id;
  }
  EXPECT_EQ(claims, 2);
}

TEST(KernelListTest, GatedDeltaNetsAreAsNearTheRecordedReferenceAsItClaims) {
  const std::string golden = "gdn_fp32.safetensors";
  const std::string input = Scratch("gdn.safetensors"), output = Scratch("gdn_out.safetensors");
  WriteInput(golden,
             {{"q", "q"}, {"k", "k"}, {"v", "v"}, {"g", "g"}, {"beta", "beta"}, {"s0", "s0"}},
             input);
  const absl::StatusOr<CheckpointFile> recorded =
      CheckpointFile::Open("tests/golden/data/" + golden);
  ASSERT_TRUE(recorded.ok());
  int claims = 0;
  for (const KernelProgram& program : KernelPrograms()) {
    if (!program.near_reference) continue;
    ++claims;
    const std::string id(program.id);
    const Ran ran = RunOn({"kernel", "run", "gdn", "--program", id}, input, output);
    ASSERT_EQ(ran.code, kExitConverged) << ran.err;
    const absl::StatusOr<CheckpointFile> got = CheckpointFile::Open(output);
    ASSERT_TRUE(got.ok());
    const std::string prefix = id == "gdn/recurrent@v1" ? "rec1_" : "chunk1_";
    for (const std::string name : {"o", "state"}) {
      const SafetensorsTensor* tensor = got->Find(name);
      const SafetensorsTensor* reference = recorded->Find(prefix + name);
      ASSERT_TRUE(tensor != nullptr && reference != nullptr) << name;
      EXPECT_EQ(tensor->spec.shape, reference->spec.shape) << "a batch of 1 stays one";
      const std::vector<float> want = Floats(*recorded, prefix + name);
      const std::vector<float> values = Floats(*got, name);
      ASSERT_EQ(values.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_LE(std::fabs(values[i] - want[i]), 1e-5f) << id << " " << name << " " << i;
      }
    }
  }
  EXPECT_EQ(claims, 4);
}

TEST(KernelListTest, NamesEveryProgramWithItsSitesAsATableAndAsJson) {
  const Ran table = RunCommand({"kernel", "list"});
  EXPECT_EQ(table.code, kExitConverged);
  EXPECT_NE(table.out.find("18,036 of 65,536"), std::string::npos);
  EXPECT_NE(table.out.find("dense_mlp shared_expert routed_experts"), std::string::npos);
  const Ran json = RunCommand({"kernel", "list", "-o", "json"});
  const nlohmann::json parsed = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(parsed.is_object());
  EXPECT_EQ(parsed["programs"].size(), KernelPrograms().size());
}

// ---- refusals ----

struct Refused {
  std::string claim;
  std::vector<std::string> words;
  std::string input;  // of the vectors
  int code;
  std::vector<std::string> says;
};

TEST(KernelRunTest, RefusesNamingWhatWasExpectedAndWhatCame) {
  const std::string swiglu = kVectors + "swiglu_two_round_ieee.safetensors";
  const std::string gemm = kVectors + "gemm_k_chain.safetensors";
  const std::string lora = kVectors + "lora_mlp_tp4.safetensors";
  const std::vector<Refused> table = {
      {"an unknown op", {"swigul"}, swiglu, kExitUsage, {"'swigul'", "swiglu"}},
      {"an unknown program",
       {"swiglu", "--program", "swiglu/two_rounds@v1"},
       swiglu,
       kExitUsage,
       {"swiglu/two_rounds@v1", "swiglu/two_round@v1"}},
      {"another op's program",
       {"swiglu", "--program", "gemm/k_chain@v1"},
       swiglu,
       kExitUsage,
       {"gemm/k_chain@v1", "swiglu/one_round_fp32@v1"}},
      {"no program", {"gemm"}, gemm, kExitUsage, {"--program", "gemm/k_tile@v1"}},
      {"an unknown realisation",
       {"swiglu", "--program", "swiglu/two_round@v1", "--realisation", "silu/iee@v1"},
       swiglu,
       kExitUsage,
       {"silu/iee@v1", "silu/ieee@v1"}},
      {"an option of another op",
       {"swiglu", "--program", "swiglu/two_round@v1", "--cp", "2"},
       swiglu,
       kExitUsage,
       {"swiglu takes no --cp", "--limit"}},
      {"an option that is no number",
       {"moe_leaf", "--program", "moe_leaf/bf16_add@v1", "--scale", "big"},
       kVectors + "moe_leaf_bf16_add.safetensors",
       kExitUsage,
       {"--scale", "'big'"}},
      {"tensors of another op",
       {"moe_fold", "--program", "moe_fold/bf16_tree@v1"},
       gemm,
       kExitUsage,
       {"'a'", "partials"}},
      {"a clamp without its limit",
       {"swiglu", "--program", "swiglu/one_round_fp32_clamped@v1"},
       swiglu,
       kExitRefused,
       {"limit"}},
      {"ordinals that do not divide",
       {"lora_mlp", "--program", "lora/active@v2", "--tp", "5"},
       lora,
       kExitRefused,
       {"I=64", "5"}},
      {"no file",
       {"gemm", "--program", "gemm/k_chain@v1"},
       kVectors + "absent.safetensors",
       kExitUsage,
       {"absent.safetensors"}},
      {"an unknown device",
       {"gemm", "--program", "gemm/k_chain@v1", "--device", "gpu"},
       gemm,
       kExitUsage,
       {"cpu, cuda", "'gpu'"}},
  };
  const std::string output = Scratch("refused.safetensors");
  for (const Refused& row : table) {
    std::vector<std::string> words = {"kernel", "run"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    const Ran ran = RunOn(words, row.input, output);
    EXPECT_EQ(ran.code, row.code) << row.claim << ": " << ran.err;
    for (const std::string& text : row.says) {
      EXPECT_NE(ran.err.find(text), std::string::npos) << row.claim << ": " << ran.err;
    }
    EXPECT_FALSE(std::filesystem::exists(output)) << row.claim;
  }
}

struct BadTensors {
  std::string claim;
  std::vector<std::string> words;
  std::vector<TensorSpec> tensors;
  int code;
  std::vector<std::string> says;
};

TEST(KernelRunTest, RefusesTensorsThatDoNotFit) {
  const std::vector<std::string> gemm = {"gemm", "--program", "gemm/k_chain@v1"};
  const std::vector<std::string> swiglu = {"swiglu", "--program", "swiglu/two_round@v1"};
  const std::vector<std::string> gdn = {"gdn", "--program", "gdn/chunk64@v1"};
  const auto gdn_tensors = [](uint64_t batch, Dtype s0) {
    return std::vector<TensorSpec>{
        {"q", Dtype::kF32, {batch, 8, 1, 4}}, {"k", Dtype::kF32, {batch, 8, 1, 4}},
        {"v", Dtype::kF32, {batch, 8, 1, 4}}, {"g", Dtype::kF32, {batch, 8, 1}},
        {"beta", Dtype::kF32, {batch, 8, 1}}, {"s0", s0, {1, 4, 4}},
    };
  };
  const std::vector<BadTensors> table = {
      {"a size that another tensor contradicts",
       gemm,
       {{"a", Dtype::kBF16, {2, 3}}, {"b", Dtype::kBF16, {4, 5}}},
       kExitUsage,
       {"tensor 'b'", "[N,K]", "K=3 as in 'a'", "got BF16 [4,5]"}},
      {"a dtype that another tensor contradicts",
       gemm,
       {{"a", Dtype::kBF16, {2, 3}}, {"b", Dtype::kF16, {4, 3}}},
       kExitUsage,
       {"tensor 'b'", "expected BF16", "got F16"}},
      {"a dtype that no program takes",
       gemm,
       {{"a", Dtype::kF32, {2, 3}}, {"b", Dtype::kF32, {4, 3}}},
       kExitUsage,
       {"tensor 'a'", "BF16 or F16", "got F32"}},
      {"a missing tensor",
       gemm,
       {{"a", Dtype::kBF16, {2, 3}}},
       kExitUsage,
       {"tensor 'b' is missing", "[N,K]"}},
      {"an unknown tensor",
       gemm,
       {{"a", Dtype::kBF16, {2, 3}}, {"b", Dtype::kBF16, {4, 3}}, {"bias", Dtype::kBF16, {4}}},
       kExitUsage,
       {"'bias'", "gemm takes a, b"}},
      {"a rank too many",
       gemm,
       {{"a", Dtype::kBF16, {1, 2, 3}}, {"b", Dtype::kBF16, {4, 3}}},
       kExitUsage,
       {"tensor 'a'", "got BF16 [1,2,3]"}},
      {"no element",
       gemm,
       {{"a", Dtype::kBF16, {0, 3}}, {"b", Dtype::kBF16, {4, 3}}},
       kExitUsage,
       {"at least 1", "[0,3]"}},
      {"an odd width of gate and up",
       swiglu,
       {{"gate_up", Dtype::kBF16, {2, 5}}},
       kExitUsage,
       {"[T,2N]", "[2,5]"}},
      {"a gate without its up",
       swiglu,
       {{"gate", Dtype::kBF16, {2, 4}}},
       kExitUsage,
       {"'gate_up' [T,2N]", "'gate' [T,N] and 'up' [T,N]", "got 'gate'"}},
      {"packed and separate both",
       swiglu,
       {{"gate_up", Dtype::kBF16, {2, 8}}, {"up", Dtype::kBF16, {2, 4}}},
       kExitUsage,
       {"got 'gate_up', 'up'"}},
      {"more than one document",
       gdn,
       gdn_tensors(2, Dtype::kF32),
       kExitRefused,
       {"batch of 1", "got 2"}},
      {"a state that is not float32",
       gdn,
       gdn_tensors(1, Dtype::kBF16),
       kExitUsage,
       {"tensor 's0'", "expected F32", "got BF16"}},
      {"ranks for a program of one",
       {"gdn", "--program", "gdn/chunk64@v1", "--cp", "2"},
       gdn_tensors(1, Dtype::kF32),
       kExitRefused,
       {"--cp 2", "gdn_cp/relay@v1"}},
      {"a length that the relay cannot split",
       {"gdn", "--program", "gdn_cp/relay@v1", "--cp", "2"},
       gdn_tensors(1, Dtype::kF32),
       kExitRefused,
       {"8"}},
  };
  const std::string input = Scratch("bad.safetensors"), output = Scratch("bad_out.safetensors");
  for (const BadTensors& row : table) {
    const std::vector<uint8_t> zeros(4096);
    std::vector<TensorToWrite> tensors;
    for (const TensorSpec& spec : row.tensors) {
      tensors.push_back({spec, absl::MakeConstSpan(zeros).first(*TensorBytes(spec))});
    }
    ASSERT_TRUE(WriteCheckpoint(input, tensors, {}).ok()) << row.claim;
    std::vector<std::string> words = {"kernel", "run"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    const Ran ran = RunOn(words, input, output);
    EXPECT_EQ(ran.code, row.code) << row.claim << ": " << ran.err;
    for (const std::string& text : row.says) {
      EXPECT_NE(ran.err.find(text), std::string::npos) << row.claim << ": " << ran.err;
    }
    EXPECT_FALSE(std::filesystem::exists(output)) << row.claim;
  }
}

TEST(KernelRunTest, ATokenOutsideTheVocabularyIsRefused) {
  const std::vector<uint8_t> ones(64, 0x3f);
  const int64_t token = 4;
  const absl::Span<const uint8_t> token_bytes(reinterpret_cast<const uint8_t*>(&token), 8);
  const std::string input = Scratch("tokens.safetensors");
  ASSERT_TRUE(
      WriteCheckpoint(input,
                      {{{"hidden", Dtype::kBF16, {1, 2}}, absl::MakeConstSpan(ones).first(4)},
                       {{"weight", Dtype::kBF16, {4, 2}}, absl::MakeConstSpan(ones).first(16)},
                       {{"tokens", Dtype::kI64, {1}}, token_bytes}},
                      {})
          .ok());
  const Ran ran = RunOn({"kernel", "run", "lm_head"}, input, Scratch("tokens_out.safetensors"));
  EXPECT_EQ(ran.code, kExitRefused) << ran.err;
  EXPECT_NE(ran.err.find("got 4 at row 0"), std::string::npos) << ran.err;
}

TEST(KernelSelftestTest, EveryProgramGivesItsPinnedBytesOnEveryInstructionSet) {
  const Ran ran = RunCommand({"kernel", "selftest", "-o", "json"});
  EXPECT_EQ(ran.code, kExitConverged) << ran.out << ran.err;
  const nlohmann::json parsed = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << ran.out;
  std::map<std::string, int> runs;
  std::map<std::string, std::string> program_of;
  for (const nlohmann::json& check : parsed["checks"]) {
    runs[check["program"].get<std::string>()] += check["runs"].get<int>();
    // Realisations and rank counts may agree on an input; programs that differ must be told apart.
    const std::string program = check["program"];
    const std::string other =
        program_of.emplace(check["digest"].get<std::string>(), program).first->second;
    const bool one_by_design = program == "gdn_cp/relay@v1" && other == "gdn/chunk64@v1";
    EXPECT_TRUE(other == program || one_by_design) << program << " and " << other;
  }
  for (const KernelProgram& program : KernelPrograms()) {
    if (program.op.empty()) continue;
    EXPECT_GE(runs[std::string(program.id)], 3) << program.id << " is not in the selftest";
  }
}

}  // namespace
}  // namespace lockstep::tools
