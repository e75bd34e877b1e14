// The house rules of ARCHITECTURE.md, checked over the source tree: top-level folders,
// allowed arrows between components, file lengths, formatting, and no machine's paths.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace {

namespace fs = std::filesystem;

constexpr int kMaxFileLines = 500;

// The runfile of //:BUILD is a link into the source tree.
fs::path SourceRoot() { return fs::canonical("BUILD").parent_path(); }

bool IsSkipped(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == ".git" || name == ".cache" || name == ".carry" || name == ".whl" ||
         absl::StartsWith(name, "bazel-");
}

// Every file of the tree, relative to its root, sorted.
std::vector<fs::path> TreeFiles() {
  std::vector<fs::path> files;
  const fs::path root = SourceRoot();
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    if (IsSkipped(it->path())) {
      if (it->is_directory() && !it->is_symlink()) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file()) files.push_back(fs::relative(it->path(), root));
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool HasExtension(const fs::path& path, const std::set<std::string>& extensions) {
  return extensions.count(path.extension().string()) > 0;
}

bool IsCode(const fs::path& path) { return HasExtension(path, {".cc", ".h", ".cu", ".cuh"}); }

std::string ReadFile(const fs::path& relative) {
  std::ifstream in(SourceRoot() / relative, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool IsText(const std::string& bytes) { return bytes.find('\0') == std::string::npos; }

// The component a path belongs to: bridge/transport/shm.h -> "bridge/transport"; elsewhere the
// top-level folder.
std::string Component(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  if (parts[0] == "bridge" && parts.size() > 2) return absl::StrCat("bridge/", parts[1]);
  return parts[0];
}

// ARCHITECTURE.md, "House": who may include whom.
const std::map<std::string, std::set<std::string>>& AllowedArrows() {
  static const auto* arrows = new std::map<std::string, std::set<std::string>>{
      {"policy", {}},
      {"kernels", {}},
      {"bridge/core", {"policy"}},
      {"bridge/wire", {"policy", "bridge/schema"}},
      {"bridge/transport", {"bridge/wire", "policy", "kernels"}},
      {"bridge/auth", {"bridge/wire", "policy"}},
      {"bridge/ledger", {"bridge/core", "bridge/wire", "policy"}},
      {"bridge/loop",
       {"bridge/core", "bridge/wire", "bridge/transport", "bridge/auth", "bridge/ledger",
        "bridge/schema", "policy", "kernels"}},
      {"bridge", {"bridge/loop", "bridge/ledger", "bridge/auth", "bridge/transport", "policy"}},
      {"trainer_client", {"bridge/wire", "bridge/transport", "bridge/auth", "policy", "kernels"}},
      {"sampler_client", {"bridge/wire", "bridge/transport", "bridge/auth", "policy", "kernels"}},
      {"tools",
       {"trainer_client", "sampler_client", "bridge/wire", "bridge/transport", "bridge/auth",
        "bridge/ledger", "policy", "kernels"}},
  };
  return *arrows;
}

TEST(HouseTest, TopLevelFoldersAreTheHouse) {
  const std::set<std::string> expected = {"bridge",         "kernels", "policy", "trainer_client",
                                          "sampler_client", "tests",   "tools"};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(SourceRoot())) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !entry.is_symlink() && name[0] != '.') found.insert(name);
  }
  EXPECT_EQ(found, expected);
}

TEST(HouseTest, EveryIncludeFollowsAnAllowedArrow) {
  const std::regex include_line("^\\s*#include \"([^\"]+)\"");
  int checked = 0;
  for (const fs::path& path : TreeFiles()) {
    if (!IsCode(path)) continue;
    const std::string from = Component(path.string());
    if (from == "tests" || absl::EndsWith(path.stem().string(), "_test")) continue;
    const auto arrows = AllowedArrows().find(from);
    ASSERT_NE(arrows, AllowedArrows().end()) << path << " lies outside the house";
    std::istringstream lines(ReadFile(path));
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, include_line)) continue;
      const std::string to = Component(match[1]);
      const bool ours = AllowedArrows().count(to) > 0 || to == "bridge/schema";
      if (!ours || to == from) continue;
      ++checked;
      EXPECT_TRUE(arrows->second.count(to) > 0)
          << path << " includes " << match[1] << ": " << from << " may not depend on " << to
          << " (ARCHITECTURE.md, House)";
    }
  }
  EXPECT_GT(checked, 20) << "the walk found too few includes to mean anything";
}

TEST(HouseTest, EveryCodeFileIsShortEnoughToRead) {
  for (const fs::path& path : TreeFiles()) {
    if (!IsCode(path) && path.extension() != ".capnp" && path.extension() != ".bzl") continue;
    const std::string text = ReadFile(path);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    EXPECT_LE(lines, kMaxFileLines) << path << " has " << lines << " lines: split it";
  }
}

TEST(HouseTest, NoMachinePathIsInTheTree) {
  // A developer's or build machine's folders. System locations are configuration: the two
  // files that may name them are listed.
  const std::regex machine("(^|[^A-Za-z0-9_.~-])/(work|root|home|farm|mnt|Users)/");
  const std::regex system("/usr/share/bazel|/usr/local/cuda");
  const std::set<std::string> configuration = {"WORKSPACE", "tools/bazel/cuda/detect.bzl"};
  for (const fs::path& path : TreeFiles()) {
    const std::string text = ReadFile(path);
    if (!IsText(text) || path == "tests/house/house_test.cc") continue;
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (line.size() > 4096) continue;  // data
      EXPECT_FALSE(std::regex_search(line, machine)) << path << ":" << number << ": " << line;
      if (configuration.count(path.string()) == 0) {
        EXPECT_FALSE(std::regex_search(line, system)) << path << ":" << number << ": " << line;
      }
    }
  }
}

TEST(HouseTest, EveryCodeFileIsFormatted) {
  std::vector<std::string> files;
  for (const fs::path& path : TreeFiles()) {
    if (IsCode(path)) files.push_back((SourceRoot() / path).string());
  }
  ASSERT_FALSE(files.empty());
  const std::string command =
      absl::StrCat("clang-format --dry-run --Werror ", absl::StrJoin(files, " "), " 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << "run clang-format -i on:\n" << output.substr(0, 4000);
}

}  // namespace
