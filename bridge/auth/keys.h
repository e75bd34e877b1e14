#ifndef LOCKSTEP_BRIDGE_AUTH_KEYS_H_
#define LOCKSTEP_BRIDGE_AUTH_KEYS_H_

// CURVE key pairs and their files. A key is 40 characters of Z85 (32 bytes).
//
// Example, once for the bridge and for each peer that comes over tcp:
//   LOCKSTEP_ASSIGN_OR_RETURN(KeyPair pair, GenerateKeyPair());
//   LOCKSTEP_RETURN_IF_ERROR(WriteKeyPair("/etc/lockstep", "sampler-1", pair));
// and then sampler-1.key stays with the sampler, the line of sampler-1.pub goes into the
// bridge's allow-list (bridge/auth/allow_list.h), and the sampler gets the bridge's .pub.
//
// The files are text, a fixed first line and then one key a line:
//   NAME.key, mode 0600          NAME.pub, mode 0644
//     lockstep-secret-key@v1       lockstep-public-key@v1
//     public PUBLIC                public PUBLIC
//     secret SECRET

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::auth {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kKeyCharacters = 40;

struct KeyPair {
  std::string public_key;
  std::string secret_key;
};

absl::StatusOr<KeyPair> GenerateKeyPair();

// True for 40 characters of Z85.
bool IsKey(absl::string_view text);

// The key's 32 bytes as Z85.
std::string KeyText(absl::string_view bytes);

// FOLDER/NAME.key and FOLDER/NAME.pub. AlreadyExists rather than overwrite a key; a name has
// 1 to 128 letters, digits, '-', '_' and '.', no '.' first.
absl::Status WriteKeyPair(const std::string& folder, const std::string& name, const KeyPair& pair);

// Reads a .key file: PermissionDenied when others may read it or it is not ours,
// InvalidArgument when it is damaged or its halves do not belong together.
absl::StatusOr<KeyPair> LoadKeyPair(const std::string& path);

// Reads a .pub file.
absl::StatusOr<std::string> LoadPublicKey(const std::string& path);

// The whole of a small text file; NotFound or ResourceExhausted (above `max_bytes`).
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace lockstep::auth

#endif  // LOCKSTEP_BRIDGE_AUTH_KEYS_H_
