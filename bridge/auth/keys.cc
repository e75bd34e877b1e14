#include "bridge/auth/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "policy/status_macros.h"

namespace lockstep::auth {
namespace {

constexpr char kSecretTitle[] = "lockstep-secret-key@v1";
constexpr char kPublicTitle[] = "lockstep-public-key@v1";
constexpr size_t kMaxKeyFileBytes = 4'096;
constexpr size_t kMaxKeyNameBytes = 128;
constexpr char kZ85Alphabet[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

absl::Status CheckName(absl::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxKeyNameBytes && name[0] != '.';
  for (char c : name) good &= absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("key name '", name, "': use 1 to ", kMaxKeyNameBytes,
                   " letters, digits, '-', '_' and '.', no '.' first"));
}

absl::Status WriteNewFile(const std::string& path, mode_t mode, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("creating ", path));
  // The umask may have taken more than the mode says.
  File file(::fdopen(fd, "w"));
  if (file == nullptr) {
    ::close(fd);
    return absl::ErrnoToStatus(errno, absl::StrCat("creating ", path));
  }
  const bool written = ::fchmod(fd, mode) == 0 &&
                       std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0 && ::fsync(fd) == 0;
  if (!written) return absl::ErrnoToStatus(errno, absl::StrCat("writing ", path));
  return absl::OkStatus();
}

// The keys of a file whose first line is `title` and whose next lines are `labels` each with
// a key.
absl::StatusOr<std::vector<std::string>> ParseKeyFile(const std::string& path,
                                                      const std::string& text,
                                                      absl::string_view title,
                                                      std::vector<absl::string_view> labels) {
  const std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  bool good = lines.size() == labels.size() + 1 && lines[0] == title;
  std::vector<std::string> keys;
  for (size_t i = 0; good && i < labels.size(); ++i) {
    absl::string_view line = lines[i + 1];
    good = absl::ConsumePrefix(&line, absl::StrCat(labels[i], " ")) && IsKey(line);
    keys.emplace_back(line);
  }
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected the line '", title, "', then one of '", absl::StrCat(labels[0], " KEY'"),
        labels.size() > 1 ? " and of 'secret KEY'" : "", " with ", kKeyCharacters,
        " characters of Z85; make a new pair"));
  }
  return keys;
}

absl::Status CheckSecretFile(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("secret key ", path));
  }
  if (found.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("secret key ", path, ": belongs to user ",
                                                    found.st_uid, ", not to us (", ::geteuid(),
                                                    "); use a key pair of your own"));
  }
  if ((found.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("secret key ", path, ": other users may open it; run chmod 600 ", path,
                     ", and make a new pair if they may have read it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeyPair> GenerateKeyPair() {
  char public_key[kKeyCharacters + 1];
  char secret_key[kKeyCharacters + 1];
  if (zmq_curve_keypair(public_key, secret_key) != 0) {
    return absl::InternalError(absl::StrCat("zmq_curve_keypair: ", zmq_strerror(zmq_errno()),
                                            "; libzmq must be built with CURVE"));
  }
  return KeyPair{public_key, secret_key};
}

bool IsKey(absl::string_view text) {
  if (text.size() != kKeyCharacters || text.find('\0') != absl::string_view::npos) return false;
  if (text.find_first_not_of(kZ85Alphabet) != absl::string_view::npos) return false;
  std::array<uint8_t, kKeyBytes> bytes;  // five characters may exceed 32 bits
  return zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr;
}

std::string KeyText(absl::string_view bytes) {
  if (bytes.size() != kKeyBytes) return "";
  char text[kKeyCharacters + 1];
  zmq_z85_encode(text, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return text;
}

absl::Status WriteKeyPair(const std::string& folder, const std::string& name, const KeyPair& pair) {
  LOCKSTEP_RETURN_IF_ERROR(CheckName(name));
  const std::string base = absl::StrCat(folder, "/", name);
  LOCKSTEP_RETURN_IF_ERROR(WriteNewFile(base + ".key", 0600,
                                        absl::StrCat(kSecretTitle, "\npublic ", pair.public_key,
                                                     "\nsecret ", pair.secret_key, "\n")));
  return WriteNewFile(base + ".pub", 0644,
                      absl::StrCat(kPublicTitle, "\npublic ", pair.public_key, "\n"));
}

absl::StatusOr<KeyPair> LoadKeyPair(const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSecretFile(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxKeyFileBytes));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> keys,
                            ParseKeyFile(path, text, kSecretTitle, {"public", "secret"}));
  char derived[kKeyCharacters + 1];
  if (zmq_curve_public(derived, keys[1].c_str()) != 0 || keys[0] != derived) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the public key does not belong to the secret one; make a new pair"));
  }
  return KeyPair{keys[0], keys[1]};
}

absl::StatusOr<std::string> LoadPublicKey(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxKeyFileBytes));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> keys,
                            ParseKeyFile(path, text, kPublicTitle, {"public"}));
  return keys[0];
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  const File file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  std::string text(max_bytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get())) return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
  if (text.size() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": more than ", max_bytes, " bytes; is it the right file?"));
  }
  return text;
}

}  // namespace lockstep::auth
