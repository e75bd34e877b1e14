#ifndef LOCKSTEP_TOOLS_CLI_RUN_TESTING_H_
#define LOCKSTEP_TOOLS_CLI_RUN_TESTING_H_

// Runs a command in this process and captures what it prints; a folder for its files.
//
// Example:
//   TestFolder folder;
//   folder.Write("config.json", "{}");
//   const Ran ran = RunCommand({"contract", "resolve", folder.Path("config.json")}, commands);
//   EXPECT_EQ(ran.code, kExitRefused) << ran.err;

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/cli/command.h"

namespace lockstep::tools {

struct Ran {
  int code = 0;
  std::string out;
  std::string err;

  // Discarded (is_discarded()) when `out` is not one JSON value.
  nlohmann::json Json() const { return nlohmann::json::parse(out, nullptr, false); }
};

inline Ran RunCommand(const std::vector<std::string>& words, absl::Span<const Command> commands) {
  std::ostringstream out, err;
  Io io{out, err};
  Ran ran;
  ran.code = RunCli(words, commands, io);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

// Removed with everything in it at the end.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-cli-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ::abort();
    path_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_RUN_TESTING_H_
