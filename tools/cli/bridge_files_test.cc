// The files that bridge commands write and watch for.

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <utime.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/safetensors.h"
#include "tools/cli/bridge_dump.h"
#include "tools/cli/bridge_watch_dir.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "lockstep-cli-XXXXXX").string();
    if (const char* folder = getenv("TEST_TMPDIR")) pattern = absl::StrCat(folder, "/cli-XXXXXX");
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(folder_, "/", name); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  static std::string ReadAll(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string folder_;
};

using DumpTest = FolderTest;

TEST_F(DumpTest, TensorsComeBackExactlyInTheOrderOfTheSafetensorsLibrary) {
  Manifest manifest;
  manifest.tensors = {{"a", Dtype::kBF16, {2}},
                      {"b", Dtype::kF32, {1}},
                      {"c", Dtype::kBF16, {0}},
                      {"d", Dtype::kU8, {3}, TensorOrigin::kDerived},
                      {"e", Dtype::kF32, {}}};
  const std::vector<std::vector<uint8_t>> bytes = {
      {1, 2, 3, 4}, {5, 6, 7, 8}, {}, {9}, {4, 3, 2, 1}};
  ASSERT_TRUE(
      DumpVersion({folder_, 7, manifest, [&](size_t i) { return absl::MakeConstSpan(bytes[i]); }})
          .ok());
  EXPECT_EQ(Names(), std::vector<std::string>{"step7.safetensors"});
  const std::string file = ReadAll(DumpPath(folder_, 7));
  const SafetensorsParse parse = ParseSafetensorsHeader(file.size(), file);
  ASSERT_TRUE(parse.refusals.empty()) << FormatRefusals(parse.refusals);
  EXPECT_EQ(file.substr(parse.header.data_start),
            std::string("\x05\x06\x07\x08\x04\x03\x02\x01\x01\x02\x03\x04", 12))
      << "b and e (F32), then a and c (BF16)";
  ASSERT_EQ(parse.header.tensors.size(), 4u) << "what the sampler derives was not published";
  EXPECT_EQ(parse.header.tensors[1].spec, manifest.tensors[1]);
  EXPECT_EQ(parse.header.metadata.at("format"), "pt");
  EXPECT_EQ(parse.header.metadata.at("policy_version"), "7");
}

TEST_F(DumpTest, AFolderThatIsNotThereIsAnErrorThatSaysWhatToDo) {
  const Manifest manifest;
  const absl::Status status = DumpVersion(
      {Path("absent"), 1, manifest, [](size_t) { return absl::Span<const uint8_t>(); }});
  EXPECT_TRUE(absl::StrContains(status.message(), "a folder that exists")) << status;
}

TEST_F(DumpTest, AFullDiskLeavesNothingBehind) {
  // A limit on the size of files stands in for a full disk: the write ends with EFBIG.
  Manifest manifest;
  manifest.tensors = {{"a", Dtype::kU8, {1 << 20}}};
  const std::vector<uint8_t> bytes(1 << 20, 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status =
      DumpVersion({folder_, 1, manifest, [&](size_t) { return absl::MakeConstSpan(bytes); }});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "free space")) << status;
  EXPECT_TRUE(Names().empty());
}

TEST(WatchDirTest, TheVersionIsTheDigitsAtTheEndOfTheName) {
  EXPECT_EQ(VersionOfFileName("step12.safetensors"), 12u);
  EXPECT_EQ(VersionOfFileName("qwen3-000.safetensors"), 0u);
  EXPECT_EQ(VersionOfFileName("7.safetensors"), 7u);
  for (const char* other :
       {"step.safetensors", ".step1.safetensors", "step1.bin", "step1.safetensors.tmp",
        "model-00001-of-00002.safetensors", "step99999999999999999999.safetensors"}) {
    EXPECT_EQ(VersionOfFileName(other), std::nullopt) << other;
  }
}

class WatchDirFolderTest : public FolderTest {
 protected:
  void Write(absl::string_view name, absl::string_view text) { std::ofstream(Path(name)) << text; }
  std::vector<uint64_t> Take(CheckpointWatch& watch) {
    std::vector<uint64_t> versions;
    for (const FoundCheckpoint& found : watch.Take()) versions.push_back(found.version);
    return versions;
  }
};

TEST_F(WatchDirFolderTest, ClosedAndRenamedFilesAreGivenOutOnceAndByVersion) {
  auto watch = CheckpointWatch::Open(folder_);
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_TRUE(Take(*watch).empty());
  Write("step10.safetensors", "closed");
  Write(".arriving", "renamed");
  fs::rename(Path(".arriving"), Path("step9.safetensors"));
  Write("notes.txt", "no checkpoint");
  EXPECT_EQ(Take(*watch), (std::vector<uint64_t>{9, 10}));
  EXPECT_TRUE(Take(*watch).empty());
}

TEST_F(WatchDirFolderTest, AFileStillBeingWrittenIsNotGivenOutUntilItIsClosed) {
  auto watch = CheckpointWatch::Open(folder_);
  ASSERT_TRUE(watch.ok()) << watch.status();
  std::ofstream writer(Path("step1.safetensors"));
  writer << "half" << std::flush;
  EXPECT_TRUE(Take(*watch).empty());
  writer << "whole" << std::flush;
  writer.close();
  EXPECT_EQ(Take(*watch), std::vector<uint64_t>{1});
}

TEST_F(WatchDirFolderTest, AFileThatWasThereBeforeCountsOnceItHasSettled) {
  Write("step1.safetensors", "old");
  Write("step2.safetensors", "fresh");
  const utimbuf past = {1'000'000'000, 1'000'000'000};
  ASSERT_EQ(::utime(Path("step1.safetensors").c_str(), &past), 0);
  auto watch = CheckpointWatch::Open(folder_);
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ(Take(*watch), std::vector<uint64_t>{1});
  ASSERT_EQ(::utime(Path("step2.safetensors").c_str(), &past), 0);
  EXPECT_EQ(Take(*watch), std::vector<uint64_t>{2});
}

TEST_F(WatchDirFolderTest, AFolderThatIsNotThereIsNotFound) {
  EXPECT_EQ(CheckpointWatch::Open(Path("absent")).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::tools
