#include "tools/cli/digest_command.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "kernels/digest.h"
#include "policy/ids.h"
#include "tools/cli/checkpoint_file.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/run_testing.h"

namespace lockstep::tools {
namespace {

Ran Try(const std::vector<std::string>& words) { return RunCommand(words, DigestCommands()); }

// The format's smallest file: `header` with its length before it, then the data.
std::string Raw(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>((uint64_t{header.size()} >> (8 * i)));
  return bytes + header + data;
}

TEST(DigestTest, JsonHasTheRootsOfEveryTensorAndOfTheFile) {
  const TestFolder folder;
  const std::vector<uint8_t> a(100'000, 7), b(6, 9);
  ASSERT_TRUE(WriteCheckpoint(folder.Path("f"),
                              {{{.name = "b", .dtype = Dtype::kBF16, .shape = {3}}, b},
                               {{.name = "a", .dtype = Dtype::kU8, .shape = {100'000}}, a}},
                              {})
                  .ok());
  const Ran ran = Try({"digest", folder.Path("f"), "-o", "json"});
  ASSERT_EQ(ran.code, kExitConverged) << ran.err;
  const nlohmann::json answer = ran.Json();
  EXPECT_EQ(answer["tensors"].size(), 2u);
  EXPECT_EQ(answer["tensors"]["a"]["content"],
            ToHex(Blake2b256({reinterpret_cast<const char*>(a.data()), a.size()})));
  kernels::PageTable table(a.size());
  ASSERT_TRUE(table.Add(kernels::PublicPageKeys(), 0, a, 1).ok());
  const Digest256 root = *kernels::TensorRoot({.name = "a", .dtype = "U8", .shape = {100'000}},
                                              kernels::PublicPageKeys(), table);
  EXPECT_EQ(answer["tensors"]["a"]["paged"], ToHex(root));
  EXPECT_EQ(answer["manifest_root"].get<std::string>().size(), 64u);
  EXPECT_TRUE(absl::StrContains(Try({"digest", folder.Path("f")}).out, ToHex(root)));
}

TEST(DigestTest, EveryDtypeScalarsAndEmptyTensorsAreAccepted) {
  const TestFolder folder;
  std::vector<uint8_t> bytes(16, 1);
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i <= static_cast<int>(Dtype::kF8E5M2Fnuz); ++i) {
    const Dtype dtype = static_cast<Dtype>(i);
    TensorSpec spec{.name = std::string(DtypeName(dtype)), .dtype = dtype, .shape = {8}};
    const uint64_t size = *TensorBytes(spec);
    bytes.resize(std::max<size_t>(bytes.size(), size), 1);
    tensors.push_back({spec, {}});
  }
  for (TensorToWrite& tensor : tensors) {
    tensor.bytes = absl::MakeConstSpan(bytes).subspan(0, *TensorBytes(tensor.spec));
  }
  tensors.push_back(
      {{.name = "scalar", .dtype = Dtype::kF32}, absl::MakeConstSpan(bytes).first(4)});
  tensors.push_back({{.name = "empty", .dtype = Dtype::kF32, .shape = {0, 5}}, {}});
  ASSERT_TRUE(WriteCheckpoint(folder.Path("f"), tensors, {{"k", "v"}}).ok());
  const Ran ran = Try({"digest", folder.Path("f"), "-o", "json"});
  ASSERT_EQ(ran.code, kExitConverged) << ran.err;
  EXPECT_EQ(ran.Json()["tensors"].size(), tensors.size());
}

TEST(DigestTest, LyingFilesAreRefusedByWhatIsWrongWithThem) {
  const TestFolder folder;
  const struct {
    std::string name, bytes;
  } kFiles[] = {
      {"empty", ""},
      {"short", "abc"},
      {"length over the file", Raw("{}", "").substr(0, 8)},
      {"huge length", std::string(8, '\xff') + "{}"},
      {"no json", Raw("{", "")},
      {"truncated data", Raw(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "123")},
      {"data after the end",
       Raw(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "123")},
      {"overlap", Raw(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      "123")},
      {"duplicate", Raw(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                        "12")},
      {"unknown dtype", Raw(R"({"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,1]}})", "1")},
      {"overflow", Raw(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],)"
                       R"("data_offsets":[0,1]}})",
                       "1")}};
  for (const auto& file : kFiles) {
    const Ran ran = Try({"digest", folder.Write("f", file.bytes)});
    EXPECT_EQ(ran.code, kExitUsage) << file.name;
    EXPECT_EQ(ran.out, "") << file.name;
    EXPECT_TRUE(absl::StrContains(ran.err, "no sound safetensors file")) << file.name << ran.err;
  }
  EXPECT_EQ(Try({"digest", folder.Path("absent")}).code, kExitUsage);
  EXPECT_EQ(Try({"digest", folder.Path("")}).code, kExitUsage) << "a folder";
  EXPECT_EQ(Try({"digest"}).code, kExitUsage);
}

TEST(CheckpointFileTest, WhatIsWrittenIsReadBackAndNothingElseIsLeft) {
  const TestFolder folder;
  const std::vector<uint8_t> bytes = {1, 2, 3, 4};
  const std::string path = folder.Path("f");
  ASSERT_TRUE(WriteCheckpoint(path, {{{.name = "t", .dtype = Dtype::kF32, .shape = {1}}, bytes}},
                              {{"who", "me"}})
                  .ok());
  EXPECT_EQ(folder.Names(), std::vector<std::string>{"f"});
  const absl::StatusOr<CheckpointFile> file = CheckpointFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_NE(file->Find("t"), nullptr);
  EXPECT_EQ(file->Find("u"), nullptr);
  EXPECT_EQ(std::vector<uint8_t>(file->Bytes(*file->Find("t")).begin(),
                                 file->Bytes(*file->Find("t")).end()),
            bytes);
  EXPECT_EQ(file->header().metadata.at("who"), "me");
  EXPECT_EQ(WriteCheckpoint(folder.Path("no/f"), {}, {}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(WriteCheckpoint(path, {{{.name = "t", .shape = {5}}, bytes}}, {}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::tools
