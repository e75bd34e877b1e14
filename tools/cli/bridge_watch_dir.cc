#include "tools/cli/bridge_watch_dir.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace lockstep::tools {
namespace {

constexpr size_t kEventBytes = 64 << 10;

size_t TrailingDigits(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[text.size() - 1 - digits])) ++digits;
  return digits;
}

}  // namespace

std::optional<uint64_t> VersionOfFileName(absl::string_view name) {
  if (absl::StartsWith(name, ".") || !absl::ConsumeSuffix(&name, ".safetensors")) {
    return std::nullopt;
  }
  const size_t digits = TrailingDigits(name);
  uint64_t version = 0;
  if (!absl::SimpleAtoi(name.substr(name.size() - digits), &version)) return std::nullopt;
  name.remove_suffix(digits);
  if (absl::ConsumeSuffix(&name, "-of-") && TrailingDigits(name) > 0) return std::nullopt;
  return version;
}

absl::StatusOr<CheckpointWatch> CheckpointWatch::Open(const std::string& folder) {
  transport::UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify.get() < 0) return absl::InternalError(absl::StrCat("inotify: ", strerror(errno)));
  const int watch =
      ::inotify_add_watch(inotify.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR);
  if (watch < 0) {
    return absl::NotFoundError(absl::StrCat("cannot watch '", folder, "': ", strerror(errno),
                                            "; name the folder that checkpoints are written to"));
  }
  return CheckpointWatch(folder, std::move(inotify));
}

void CheckpointWatch::TakeEvents() {
  alignas(inotify_event) char buffer[kEventBytes];
  for (;;) {
    const ssize_t size = ::read(inotify_.get(), buffer, sizeof(buffer));
    if (size <= 0) return;
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      if (event->len > 0) closed_.insert(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

std::vector<FoundCheckpoint> CheckpointWatch::Take() {
  TakeEvents();
  std::vector<FoundCheckpoint> found;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failed)) {
    const std::string name = entry.path().filename().string();
    const std::optional<uint64_t> version = VersionOfFileName(name);
    struct stat info {};
    if (!version.has_value() || ::stat(entry.path().c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    const Stamp stamp{info.st_ino, info.st_size, absl::TimeFromTimespec(info.st_mtim)};
    const auto given = given_.find(name);
    if (given != given_.end() && given->second == stamp) continue;
    const bool settled = absl::Now() - stamp.changed >= kSettleTime;
    if (!settled && !closed_.contains(name)) continue;
    given_[name] = stamp;
    found.push_back({*version, entry.path().string()});
  }
  closed_.clear();
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::tie(a.version, a.path) < std::tie(b.version, b.path);
  });
  return found;
}

}  // namespace lockstep::tools
