#ifndef LOCKSTEP_BRIDGE_AUTH_ALLOW_LIST_H_
#define LOCKSTEP_BRIDGE_AUTH_ALLOW_LIST_H_

// Who may come over tcp. A text file, one key a line:
//
//   # key, name, role
//   Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID  trainer-0  trainer
//   rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7  sampler-1  sampler
//
// Fields are separated by spaces or tabs; a line that starts with '#' is a comment (no key
// does: 84 * 85^4 is above 32 bits). Roles: trainer, sampler, operator. A peer must call
// itself what its line says; a name may have several keys.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::auth {

inline constexpr size_t kMaxAllowListBytes = size_t{4} << 20;
inline constexpr size_t kMaxAllowedKeys = 10'000;
inline constexpr size_t kMaxAllowedNameBytes = 128;

class AllowList {
 public:
  // Admits nobody.
  AllowList() = default;

  // InvalidArgument names the line.
  static absl::StatusOr<AllowList> Parse(absl::string_view text);
  static absl::StatusOr<AllowList> Load(const std::string& path);

  // "NAME:ROLE", or null for a key that is not listed. The key is Z85.
  const std::string* Find(const std::string& public_key) const;
  size_t size() const { return user_ids_.size(); }

 private:
  std::map<std::string, std::string> user_ids_;  // by key
};

}  // namespace lockstep::auth

#endif  // LOCKSTEP_BRIDGE_AUTH_ALLOW_LIST_H_
