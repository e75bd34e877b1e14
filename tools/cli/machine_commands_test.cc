#include "tools/cli/machine_commands.h"

#include <sys/stat.h>

#include <sstream>

#include "bridge/transport/temporary_folder_testing.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/cli/exit_codes.h"

namespace lockstep::tools {
namespace {

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

Ran RunCommand(const std::vector<std::string>& words) {
  std::ostringstream out, err;
  Io io{out, err};
  const int code = RunCli(words, MachineCommands(), io);
  return {code, out.str(), err.str()};
}

TEST(DoctorTest, SaysOfEverythingWhetherItIsHereAndWhatToDo) {
  const transport::TemporaryFolder folder;
  const std::string nobody = "ipc://" + folder.path() + "/nobody.sock";
  const Ran ran = RunCommand({"doctor", "--bridge", nobody, "-o", "json"});
  const nlohmann::json checks = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(checks.is_object()) << ran.out;
  bool any_bad = false;
  std::string bridge;
  for (const nlohmann::json& check : checks["checks"]) {
    EXPECT_FALSE(check["found"].get<std::string>().empty()) << check;
    any_bad |= check["state"] == "bad";
    if (check["name"] == "bridge") bridge = check["state"];
  }
  EXPECT_GE(checks["checks"].size(), 10u);
  EXPECT_EQ(bridge, "absent");
  EXPECT_EQ(ran.code, any_bad ? kExitDegraded : kExitConverged);
}

TEST(DoctorTest, AnAddressThatIsNoneIsBad) {
  const Ran ran = RunCommand({"doctor", "--bridge", "smoke signals"});
  EXPECT_EQ(ran.code, kExitDegraded);
  EXPECT_NE(ran.out.find("bad"), std::string::npos);
}

TEST(KeygenTest, WritesAPairOnceWithTheSecretForTheOwnerAlone) {
  const transport::TemporaryFolder folder;
  const Ran first = RunCommand({"keygen", "sampler-1", "--dir", folder.path()});
  EXPECT_EQ(first.code, kExitConverged) << first.err;
  EXPECT_EQ(first.out.size(), 41u) << "40 characters of Z85 and a newline";
  struct stat info {};
  ASSERT_EQ(::stat((folder.path() + "/sampler-1.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const Ran second = RunCommand({"keygen", "sampler-1", "--dir", folder.path()});
  EXPECT_EQ(second.code, kExitUsage) << "a key is never overwritten";
}

}  // namespace
}  // namespace lockstep::tools
