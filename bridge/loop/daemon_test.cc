#include "bridge/loop/daemon.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "bridge/loop/stop_signals.h"
#include "bridge/transport/temporary_folder_testing.h"
#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

class DaemonTest : public ::testing::Test {
 protected:
  DaemonFlags At(const std::string& socket, const std::string& state) const {
    DaemonFlags flags;
    flags.listen = "ipc://" + folder_.path() + "/" + socket;
    flags.state_dir = folder_.path() + "/" + state;
    flags.log_level = LogLevel::kError;
    return flags;
  }

  const transport::TemporaryFolder folder_;
};

TEST_F(DaemonTest, SecondBridgeOnOneSocketOrOneStateFolderIsRefused) {
  const auto first = StartDaemon(At("b.sock", "a/b/state"), -1);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status same_socket = StartDaemon(At("b.sock", "other"), -1).status();
  EXPECT_EQ(same_socket.code(), absl::StatusCode::kAlreadyExists) << same_socket;
  const absl::Status same_state = StartDaemon(At("c.sock", "a/b/state"), -1).status();
  EXPECT_EQ(same_state.code(), absl::StatusCode::kFailedPrecondition) << same_state;
}

TEST_F(DaemonTest, SocketOfADeadBridgeIsReplacedAndAFileIsNot) {
  {
    // A bound socket that nobody listens at, as a killed bridge leaves it.
    transport::UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_.path() + "/b.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  const auto bridge = StartDaemon(At("b.sock", "state"), -1);
  EXPECT_TRUE(bridge.ok()) << bridge.status();
  std::ofstream(folder_.path() + "/notes.txt") << "mine";
  const absl::Status refused = StartDaemon(At("notes.txt", "state2"), -1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
}

TEST_F(DaemonTest, TcpWithoutKeysSaysHowToMakeThem) {
  DaemonFlags flags = At("b.sock", "state");
  flags.listen = "tcp://127.0.0.1:0";
  const absl::Status refused = StartDaemon(flags, -1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_NE(refused.message().find("lockstep keygen"), absl::string_view::npos) << refused;
  flags.listen = At("b.sock", "state").listen;
  flags.keys_path = "x.key";
  EXPECT_TRUE(absl::IsInvalidArgument(StartDaemon(flags, -1).status()));
}

TEST_F(DaemonTest, AnAddressThatNoPeerCanBeToldIsRefused) {
  for (const char* listen : {"tcp://0.0.0.0:5555", "tcp://[::]:5555"}) {
    const absl::Status refused = ControlSocket::CheckFree(*transport::ParseAddress(listen));
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << listen;
  }
}

TEST_F(DaemonTest, StateLiesInXdgStateHomeThenInHome) {
  ::setenv("HOME", folder_.path().c_str(), 1);
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(*DefaultStateFolder("r"), folder_.path() + "/.local/state/lockstep/r");
  ::setenv("XDG_STATE_HOME", folder_.path().c_str(), 1);
  EXPECT_EQ(*DefaultStateFolder("r"), folder_.path() + "/lockstep/r");
  ::setenv("XDG_STATE_HOME", "no/folder", 1);
  ::setenv("HOME", "/nonexistent", 1);
  ::setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
  EXPECT_EQ(*DefaultStateFolder("r"), folder_.path() + "/lockstep/state/r");
}

TEST(StopSignalsTest, SigtermAndSigintComeThroughTheDescriptor) {
  const transport::UniqueFd fd = BlockStopSignals().value();
  EXPECT_EQ(TakeStopSignal(fd.get()), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(TakeStopSignal(fd.get()), SIGTERM);
  ::raise(SIGINT);
  EXPECT_EQ(TakeStopSignal(fd.get()), SIGINT);
  EXPECT_EQ(TakeStopSignal(fd.get()), 0);
}

}  // namespace
}  // namespace lockstep::loop
