#include "sampler_client/rollout_content.h"

#include <bit>
#include <string>

namespace lockstep {
namespace {

void Append(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

Digest256 RolloutContent(const Rollout& rollout) {
  std::string text = "lockstep rollout content@v1\n";
  Append(text, rollout.sampler.size(), 4);
  text += rollout.sampler;
  Append(text, rollout.spans.size(), 8);
  for (const TokenSpan& span : rollout.spans) {
    Append(text, span.version, 8);
    Append(text, span.start, 8);
    Append(text, span.end, 8);
  }
  Append(text, rollout.tokens.size(), 8);
  for (const int64_t token : rollout.tokens) Append(text, static_cast<uint64_t>(token), 8);
  Append(text, rollout.sampler_logprobs.size(), 8);
  for (const float value : rollout.sampler_logprobs)
    Append(text, std::bit_cast<uint32_t>(value), 4);
  return Blake2b256(text);
}

}  // namespace lockstep
