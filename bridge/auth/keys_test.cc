#include "bridge/auth/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::auth {
namespace {

class KeysTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/keys_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  mode_t ModeOf(const std::string& name) {
    struct stat found {};
    EXPECT_EQ(::stat((folder_ + "/" + name).c_str(), &found), 0);
    return found.st_mode & 0777;
  }

  void Overwrite(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::trunc) << text;
  }

  std::string folder_;
};

TEST_F(KeysTest, WrittenPairIsReadBackFromOwnerOnlyFile) {
  const KeyPair pair = GenerateKeyPair().value();
  ASSERT_TRUE(WriteKeyPair(folder_, "sampler-1", pair).ok());
  EXPECT_EQ(ModeOf("sampler-1.key"), 0600u);
  const absl::StatusOr<KeyPair> read = LoadKeyPair(folder_ + "/sampler-1.key");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->public_key, pair.public_key);
  EXPECT_EQ(read->secret_key, pair.secret_key);
  EXPECT_EQ(LoadPublicKey(folder_ + "/sampler-1.pub").value(), pair.public_key);
}

TEST_F(KeysTest, PublicFileHoldsNoSecret) {
  const KeyPair pair = GenerateKeyPair().value();
  ASSERT_TRUE(WriteKeyPair(folder_, "k", pair).ok());
  EXPECT_EQ(ReadTextFile(folder_ + "/k.pub", 4096)->find(pair.secret_key), std::string::npos);
  EXPECT_FALSE(LoadKeyPair(folder_ + "/k.pub").ok());
}

TEST_F(KeysTest, ExistingKeyIsNotOverwritten) {
  const KeyPair pair = GenerateKeyPair().value();
  ASSERT_TRUE(WriteKeyPair(folder_, "k", pair).ok());
  EXPECT_EQ(WriteKeyPair(folder_, "k", GenerateKeyPair().value()).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(LoadKeyPair(folder_ + "/k.key")->secret_key, pair.secret_key);
}

TEST_F(KeysTest, SecretOpenToOthersIsRefused) {
  ASSERT_TRUE(WriteKeyPair(folder_, "k", GenerateKeyPair().value()).ok());
  ASSERT_EQ(::chmod((folder_ + "/k.key").c_str(), 0640), 0);
  const absl::Status status = LoadKeyPair(folder_ + "/k.key").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find("chmod 600"), absl::string_view::npos);
}

TEST_F(KeysTest, HalvesThatDoNotBelongTogetherAreRefused) {
  const KeyPair one = GenerateKeyPair().value();
  ASSERT_TRUE(WriteKeyPair(folder_, "k", {one.public_key, GenerateKeyPair()->secret_key}).ok());
  EXPECT_EQ(LoadKeyPair(folder_ + "/k.key").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KeysTest, DamagedFilesAreRefused) {
  ASSERT_TRUE(WriteKeyPair(folder_, "k", GenerateKeyPair().value()).ok());
  const std::string good = ReadTextFile(folder_ + "/k.key", 4096).value();
  for (const std::string& text :
       {std::string(), good.substr(0, good.size() - 2), good + "more\n", "x" + good}) {
    Overwrite("k.key", text);
    EXPECT_EQ(LoadKeyPair(folder_ + "/k.key").status().code(), absl::StatusCode::kInvalidArgument);
  }
  Overwrite("k.key", std::string(5'000, 'a'));
  EXPECT_EQ(LoadKeyPair(folder_ + "/k.key").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LoadKeyPair(folder_ + "/none.key").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KeysTest, NamesThatWouldLeaveTheFolderAreRefused) {
  for (const char* name : {"", "../k", "a/b", ".hidden", "a b"}) {
    EXPECT_EQ(WriteKeyPair(folder_, name, GenerateKeyPair().value()).code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(KeysTest, KeyIsFortyCharactersOfZ85) {
  const std::string key = GenerateKeyPair()->public_key;
  EXPECT_TRUE(IsKey(key));
  EXPECT_FALSE(IsKey(key.substr(1)));
  EXPECT_FALSE(IsKey(" " + key.substr(1)));
  EXPECT_FALSE(IsKey(std::string(40, '#')));  // above 32 bits a group
  EXPECT_EQ(KeyText("short"), "");
}

}  // namespace
}  // namespace lockstep::auth
