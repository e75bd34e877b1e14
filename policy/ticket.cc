#include "policy/ticket.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

void AppendLittleEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendString(std::string& out, absl::string_view text) {
  AppendLittleEndian(out, text.size(), 4);
  absl::StrAppend(&out, text);
}

}  // namespace

Digest256 MakeTicket(const Digest256& key, const TicketSubject& subject) {
  std::string message = "lockstep ticket@v1\n";
  AppendString(message, subject.run);
  AppendString(message, subject.sampler);
  message.append(subject.incarnation.begin(), subject.incarnation.end());
  AppendLittleEndian(message, subject.version, 8);
  AppendLittleEndian(message, subject.cache_epoch, 8);
  return Blake2b256Keyed(key, message);
}

bool CheckTicket(const Digest256& key, const TicketSubject& subject, const Digest256& ticket) {
  return ConstantTimeEqual(MakeTicket(key, subject), ticket);
}

}  // namespace lockstep
