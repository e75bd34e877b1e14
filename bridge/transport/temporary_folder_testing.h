#ifndef LOCKSTEP_BRIDGE_TRANSPORT_TEMPORARY_FOLDER_TESTING_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_TEMPORARY_FOLDER_TESTING_H_

// For tests: an owner-only folder with a path short enough for Unix sockets (TEST_TMPDIR
// often is too long), gone at the end of the scope.

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep::transport {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "lkst-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_TEMPORARY_FOLDER_TESTING_H_
