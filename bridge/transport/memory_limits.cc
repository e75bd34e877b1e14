// AvailableMemoryBytes: /proc/meminfo, and the memory controller of cgroup v2 or v1.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bridge/transport/shm_arena.h"

namespace lockstep::transport {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr char kCgroupRoot[] = "/sys/fs/cgroup";

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

uint64_t MachineAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  uint64_t total_kib = 0;
  bool found = false;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name;
    uint64_t kib = 0;
    if (!(fields >> name >> kib)) continue;
    if (name != "MemAvailable:" && name != "SwapFree:") continue;
    total_kib += kib;
    found = true;
  }
  return found ? total_kib * 1024 : kUnlimited;
}

uint64_t Left(const std::string& folder, const char* limit_file, const char* usage_file) {
  const std::optional<uint64_t> limit = ReadNumber(absl::StrCat(folder, "/", limit_file));
  const std::optional<uint64_t> usage = ReadNumber(absl::StrCat(folder, "/", usage_file));
  if (!limit.has_value() || !usage.has_value()) return kUnlimited;
  return *limit > *usage ? *limit - *usage : 0;
}

// The least that the group and any group above it leaves.
uint64_t LeftUpwards(const std::string& root, std::string group, const char* limit_file,
                     const char* usage_file) {
  uint64_t left = Left(root, limit_file, usage_file);
  while (!group.empty() && group != "/") {
    left = std::min(left, Left(absl::StrCat(root, group), limit_file, usage_file));
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  return left;
}

uint64_t ControlGroupAvailable() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  uint64_t left = kUnlimited;
  while (std::getline(file, line)) {
    // "0::/path" is version 2; "9:memory:/path" is version 1.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[0] == "0" && parts[1].empty()) {
      left = std::min(left, LeftUpwards(kCgroupRoot, parts[2], "memory.max", "memory.current"));
    } else if (parts[1] == "memory") {
      left = std::min(left, LeftUpwards(absl::StrCat(kCgroupRoot, "/memory"), parts[2],
                                        "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return left;
}

}  // namespace

uint64_t AvailableMemoryBytes() { return std::min(MachineAvailable(), ControlGroupAvailable()); }

}  // namespace lockstep::transport
