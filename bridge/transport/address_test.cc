#include "bridge/transport/address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "bridge/transport/temporary_folder_testing.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::transport {
namespace {

constexpr std::chrono::milliseconds kPatience(5'000);

// Sets or removes (null) a variable of the environment and restores it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    Put(value);
  }
  ~ScopedVariable() { Put(had_ ? old_.c_str() : nullptr); }

 private:
  void Put(const char* value) { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }
  const char* name_;
  bool had_ = false;
  std::string old_;
};

mode_t ModeOf(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
  return found.st_mode & 0777;
}

TEST(AddressTest, GoodAddressesAreReadAndWrittenBack) {
  for (const char* text :
       {"ipc:///run/x/bridge.sock", "ipc://relative.sock", "tcp://127.0.0.1:70",
        "tcp://host.example:65535", "tcp://[::1]:7000", "tcp://127.0.0.1:0", "tcp://*:7000"}) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
  }
  EXPECT_EQ(ParseAddress("tcp://[::1]:7000")->host, "[::1]");
  EXPECT_EQ(ParseAddress("tcp://h:7000")->port, 7000);
  EXPECT_EQ(FdSocketPath(ParseAddress("ipc:///a/b.sock").value()), "/a/b.sock.fd");
}

TEST(AddressTest, BadAddressesAreRefusedWithBothForms) {
  const std::string nul("ipc://a\0b", 9);
  for (const std::string& text :
       {std::string(""), std::string("/run/bridge.sock"), std::string("ipc://"),
        std::string("ipc://@abstract"), std::string("ipc://*"), nul, std::string("tcp://"),
        std::string("tcp://h"), std::string("tcp://h:"), std::string("tcp://:7"),
        std::string("tcp://h:65536"), std::string("tcp://h:-1"), std::string("tcp://h:+1"),
        std::string("tcp://h: 1"), std::string("tcp://::1:7"), std::string("tcp://a/b:7"),
        std::string("http://h:7"), std::string("IPC:///a")}) {
    const absl::Status status = ParseAddress(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("ipc://PATH or tcp://HOST:PORT"), absl::string_view::npos);
  }
}

TEST(AddressTest, PathThatNoUnixSocketTakesIsRefused) {
  const std::string longest(kMaxIpcPathBytes - 1, 'x');
  const absl::StatusOr<Address> fits = ParseAddress(absl::StrCat("ipc:///", longest));
  ASSERT_TRUE(fits.ok());
  EXPECT_LT(FdSocketPath(*fits).size(), sizeof(sockaddr_un::sun_path));
  const absl::Status status = ParseAddress(absl::StrCat("ipc:///", longest, "x")).status();
  EXPECT_NE(status.message().find("shorter folder"), absl::string_view::npos) << status;
}

TEST(AddressTest, DefaultRunFolderIsCreatedOwnerOnly) {
  const TemporaryFolder folder;
  const ScopedVariable runtime("XDG_RUNTIME_DIR", folder.path().c_str());
  const std::string expected = folder.path() + "/lockstep";
  EXPECT_EQ(DefaultRunFolder().value(), expected);
  EXPECT_EQ(ModeOf(expected), 0700u);
  EXPECT_EQ(DefaultBridgeAddress().value(), absl::StrCat("ipc://", expected, "/bridge.sock"));
}

TEST(AddressTest, WithoutRuntimeFolderTheTemporaryOneIsTaken) {
  const TemporaryFolder folder;
  const ScopedVariable temporary("TMPDIR", folder.path().c_str());
  const std::string expected = absl::StrCat(folder.path(), "/lockstep-", ::geteuid());
  for (const char* runtime : {static_cast<const char*>(nullptr), "", "relative", "/no/such"}) {
    const ScopedVariable unset("XDG_RUNTIME_DIR", runtime);
    EXPECT_EQ(DefaultRunFolder().value(), expected);
  }
}

TEST(AddressTest, RunFolderThatOthersCouldUseIsRefused) {
  const TemporaryFolder folder;
  const std::string open = folder.path() + "/open";
  ASSERT_EQ(::mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(open.c_str(), 0750), 0);
  EXPECT_EQ(PrepareOwnerOnlyFolder(open).code(), absl::StatusCode::kPermissionDenied);

  const std::string mine = folder.path() + "/mine";
  ASSERT_TRUE(PrepareOwnerOnlyFolder(mine).ok());
  ASSERT_TRUE(PrepareOwnerOnlyFolder(mine).ok());
  const std::string link = folder.path() + "/link";
  std::filesystem::create_directory_symlink(mine, link);
  EXPECT_EQ(PrepareOwnerOnlyFolder(link).code(), absl::StatusCode::kPermissionDenied);

  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "x";
  EXPECT_EQ(PrepareOwnerOnlyFolder(file).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(PrepareOwnerOnlyFolder(folder.path() + "/no/such").code(), absl::StatusCode::kNotFound);
}

TEST(AddressTest, RunFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  const TemporaryFolder folder;
  const std::string theirs = folder.path() + "/theirs";
  ASSERT_EQ(::mkdir(theirs.c_str(), 0700), 0);
  ASSERT_EQ(::chown(theirs.c_str(), 12345, 12345), 0);
  const absl::Status status = PrepareOwnerOnlyFolder(theirs);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find("12345"), absl::string_view::npos);
}

TEST(AddressTest, BridgePresentTellsAListenerFromAnEmptyPlace) {
  const TemporaryFolder folder;
  const Address address = ParseAddress(absl::StrCat("ipc://", folder.path(), "/b.sock")).value();
  const absl::Status absent = BridgePresent(address, kPatience);
  EXPECT_EQ(absent.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(absent.message().find("lockstepd --listen"), absl::string_view::npos) << absent;

  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  address.path.copy(to.sun_path, sizeof(to.sun_path) - 1);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  EXPECT_TRUE(BridgePresent(address, kPatience).ok());
  // The file stays when its bridge is killed.
  listener.Reset();
  ASSERT_TRUE(std::filesystem::exists(address.path));
  EXPECT_EQ(BridgePresent(address, kPatience).code(), absl::StatusCode::kUnavailable);
}

TEST(AddressTest, BridgePresentOverTcp) {
  // A port that was free a moment ago, held without listening: connecting is refused.
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(to);
  const UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(holder.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&to), &size), 0);
  const Address address =
      ParseAddress(absl::StrCat("tcp://127.0.0.1:", ntohs(to.sin_port))).value();
  EXPECT_EQ(BridgePresent(address, kPatience).code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(::listen(holder.get(), 4), 0);
  EXPECT_TRUE(BridgePresent(address, kPatience).ok());
  EXPECT_EQ(BridgePresent(ParseAddress("tcp://127.0.0.1:0").value(), kPatience).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::transport
