#include "bridge/loop/spool.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "bridge/transport/temporary_folder_testing.h"
#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

class SpoolTest : public ::testing::Test {
 protected:
  std::string FilePath(uint64_t version) const {
    return folder_.path() + "/versions/" + std::to_string(version) + ".spool";
  }
  void Damage(uint64_t version, long offset) const {
    FILE* file = fopen(FilePath(version).c_str(), "r+b");
    ASSERT_NE(file, nullptr);
    fseek(file, offset, SEEK_SET);
    const int byte = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
  }

  const transport::TemporaryFolder folder_;
  const Spool spool_{folder_.path()};
  const std::vector<uint8_t> bytes_ = {1, 2, 3, 4, 5};
  std::vector<uint8_t> read_ = std::vector<uint8_t>(5);
};

TEST_F(SpoolTest, WhatWasWrittenIsReadBackAndOwnedByTheUserOnly) {
  ASSERT_TRUE(spool_.Write(3, bytes_).ok());
  ASSERT_TRUE(spool_.Read(3, absl::MakeSpan(read_)).ok());
  EXPECT_EQ(read_, bytes_);
  struct stat info;
  ASSERT_EQ(stat(FilePath(3).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path() + "/versions"), {}),
            1);
}

TEST_F(SpoolTest, EveryDamagedByteIsFound) {
  for (long offset = 0; offset < 32 + 5; ++offset) {
    ASSERT_TRUE(spool_.Write(3, bytes_).ok());
    Damage(3, offset);
    EXPECT_EQ(spool_.Read(3, absl::MakeSpan(read_)).code(), absl::StatusCode::kDataLoss) << offset;
  }
}

TEST_F(SpoolTest, AFileCutShortOrOfAnotherVersionIsDataLoss) {
  ASSERT_TRUE(spool_.Write(3, bytes_).ok());
  std::filesystem::copy_file(FilePath(3), FilePath(4));
  EXPECT_EQ(spool_.Read(4, absl::MakeSpan(read_)).code(), absl::StatusCode::kDataLoss);
  std::filesystem::resize_file(FilePath(3), 36);
  EXPECT_EQ(spool_.Read(3, absl::MakeSpan(read_)).code(), absl::StatusCode::kDataLoss);
}

TEST_F(SpoolTest, MissingIsNotFoundAndDroppingItIsFine) {
  EXPECT_EQ(spool_.Read(9, absl::MakeSpan(read_)).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(spool_.Drop(9).ok());
  ASSERT_TRUE(spool_.Write(3, bytes_).ok());
  ASSERT_TRUE(spool_.Drop(3).ok());
  EXPECT_EQ(spool_.Read(3, absl::MakeSpan(read_)).code(), absl::StatusCode::kNotFound);
}

TEST_F(SpoolTest, AFailedWriteLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(spool_.Write(3, bytes_).ok());
  // A folder where the new file would be written.
  std::filesystem::create_directory(FilePath(3) + ".tmp");
  EXPECT_FALSE(spool_.Write(3, {9, 9, 9, 9, 9}).ok());
  ASSERT_TRUE(spool_.Read(3, absl::MakeSpan(read_)).ok());
  EXPECT_EQ(read_, bytes_);
}

}  // namespace
}  // namespace lockstep::loop
