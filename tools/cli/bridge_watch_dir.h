#ifndef LOCKSTEP_TOOLS_CLI_BRIDGE_WATCH_DIR_H_
#define LOCKSTEP_TOOLS_CLI_BRIDGE_WATCH_DIR_H_

// Checkpoints that appear in a folder, for `publish --watch-dir`. A checkpoint is a file
// NAME.safetensors whose NAME ends in digits: its version (step7.safetensors is version 7).
// Others, those whose name begins with a dot, and shards (NAME-00001-of-00002) are passed over.
//
// A file counts as complete when it was renamed into the folder or closed by its writer while
// it was watched, or has not changed for kSettleTime.
//
// Example:
//   LOCKSTEP_ASSIGN_OR_RETURN(CheckpointWatch watch, CheckpointWatch::Open(folder));
//   for (const FoundCheckpoint& found : watch.Take()) Publish(found);
//   stop.WaitUnlessReadable(watch.fd(), absl::Seconds(1));

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bridge/transport/unique_fd.h"

namespace lockstep::tools {

inline constexpr absl::Duration kSettleTime = absl::Seconds(2);

// The version that a file's name says; nullopt when it is no checkpoint's.
std::optional<uint64_t> VersionOfFileName(absl::string_view name);

struct FoundCheckpoint {
  uint64_t version = 0;
  std::string path;
};

class CheckpointWatch {
 public:
  // NotFound when there is no such folder.
  static absl::StatusOr<CheckpointWatch> Open(const std::string& folder);

  // Complete checkpoints that were not given out before, or have changed since, by version.
  std::vector<FoundCheckpoint> Take();

  // Readable when something happened in the folder.
  int fd() const { return inotify_.get(); }

 private:
  CheckpointWatch(std::string folder, transport::UniqueFd inotify)
      : folder_(std::move(folder)), inotify_(std::move(inotify)) {}

  // Adds to closed_ the names of files that were closed or renamed into place.
  void TakeEvents();

  // Tells one state of a file from another.
  struct Stamp {
    uint64_t inode = 0;
    int64_t bytes = 0;
    absl::Time changed;
    bool operator==(const Stamp&) const = default;
  };

  std::string folder_;
  transport::UniqueFd inotify_;
  std::set<std::string> closed_;
  std::map<std::string, Stamp> given_;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_BRIDGE_WATCH_DIR_H_
