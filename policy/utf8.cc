#include "policy/utf8.h"

#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

// Length of the sequence that `lead` opens and the range its second byte must be in; the
// range is what excludes overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  size_t length;  // 0: not a lead byte
  uint8_t second_min;
  uint8_t second_max;
};

Lead ClassifyLead(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

bool IsValidUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Lead lead = ClassifyLead(static_cast<uint8_t>(text[at]));
    if (lead.length == 0 || lead.length > text.size() - at) return false;
    for (size_t i = 1; i < lead.length; ++i) {
      const auto byte = static_cast<uint8_t>(text[at + i]);
      const uint8_t low = i == 1 ? lead.second_min : 0x80;
      const uint8_t high = i == 1 ? lead.second_max : 0xBF;
      if (byte < low || byte > high) return false;
    }
    at += lead.length;
  }
  return true;
}

}  // namespace lockstep
