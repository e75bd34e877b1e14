// The C ABI as a C program sees it: liblockstep.so, against a bridge in this process.

#include "tools/capi/lockstep.h"

#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "bridge/loop/loop_testing.h"
#include "tests/capi/c_client.h"

namespace lockstep::capi {
namespace {

void Failed(const char* what, int line, const char* detail) {
  ADD_FAILURE() << "c_client.c:" << line << ": " << what << " (" << detail << ")";
}

// What a command prints.
std::string Output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

TEST(CApiTest, LibraryShowsExactlyTheFunctionsOfItsHeader) {
  std::ifstream in("tools/capi/lockstep.h");
  std::stringstream header;
  header << in.rdbuf();
  const std::string text = header.str();
  const std::regex function("LOCKSTEP_API [^(;]*?(lockstep_[a-z_]+)\\(");
  std::set<std::string> declared;
  for (std::sregex_iterator it(text.begin(), text.end(), function), end; it != end; ++it) {
    declared.insert((*it)[1]);
  }
  EXPECT_GT(declared.size(), 20u);

  std::istringstream lines(Output("nm -D --defined-only tools/capi/liblockstep.so"));
  std::set<std::string> shown;
  std::string address, kind, name;
  while (lines >> address >> kind >> name) shown.insert(name);
  EXPECT_EQ(shown, declared);
}

TEST(CApiTest, ArgumentsAndErrorsAreSaidWithoutABridge) { c_client_without_bridge(Failed); }

TEST(CApiTest, TrainerAndSamplerInCSyncOverSharedMemory) {
  const loop::Place place;
  const loop::RunningLoop bridge(place);
  c_client_with_bridge(bridge.address().c_str(), "shm", Failed);
}

TEST(CApiTest, TrainerAndSamplerInCSyncOverTcp) {
  const loop::Place place;
  const loop::RunningLoop bridge(place);
  c_client_with_bridge(bridge.address().c_str(), "tcp", Failed);
}

}  // namespace
}  // namespace lockstep::capi
