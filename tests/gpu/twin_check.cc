#include "tests/gpu/twin_check.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/float_formats.h"

namespace lockstep::kernels {
namespace {

std::string Hex(const uint8_t* bytes, size_t count) {
  std::string hex = "0x";
  for (size_t i = count; i-- > 0;) absl::StrAppendFormat(&hex, "%02X", bytes[i]);
  return hex;
}

// Sum of four uniforms, centred and scaled to variance 1: near enough to N(0, 1).
float NormalLike(uint64_t bits) {
  float sum = 0;
  for (int shift = 0; shift < 64; shift += 16) {
    sum += static_cast<float>((bits >> shift) & 0xFFFF) / 65536.0f;
  }
  constexpr float kInverseDeviation = 1.7320508f;
  return (sum - 2.0f) * kInverseDeviation;
}

// One tenth of adversarial elements are of each kind; the rest are ordinary.
uint32_t Adversarial(uint64_t kind, uint32_t any_bits, uint32_t ordinary) {
  constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7F800000;
  const uint32_t sign = any_bits & kSign;
  switch (kind % 10) {
    case 0:
      return any_bits;
    case 1:
      return kind % 7 == 0 ? any_bits | kInfinity | 0x00010000 : ordinary;  // NaN payloads, rarer
    case 2:
      return kind % 7 == 0 ? sign | kInfinity : ordinary;
    case 3:
      return sign;
    case 4:
      return sign | (any_bits & 0x007FFFFF);  // denormal
    case 5:
      return sign | 0x7F000000 | (any_bits & 0x007FFFFF);
    default:
      return ordinary;
  }
}

float ScaleOf(Mix mix) {
  if (mix == Mix::kSmall) return 0.03125f;
  return mix == Mix::kTiny ? 0x1p-70f : 1.0f;
}

}  // namespace

void Die(const absl::Status& status) {
  fprintf(stderr, "%s\n", status.ToString().c_str());
  exit(2);
}

TwinCheck::TwinCheck(uint64_t seed, std::string only)
    : stream_(OrDie(OwnedCudaStream::Create())), state_(seed), only_(std::move(only)) {}

bool TwinCheck::Wants(absl::string_view program) const { return absl::StrContains(program, only_); }

// SplitMix64.
uint64_t TwinCheck::Random() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

int64_t TwinCheck::Between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Random() % static_cast<uint64_t>(high - low + 1));
}

std::vector<float> TwinCheck::Floats(size_t count, Mix mix) {
  std::vector<float> values(count);
  for (float& value : values) {
    const uint64_t bits = Random();
    value = NormalLike(bits) * ScaleOf(mix);
    if (mix != Mix::kAdversarial) continue;
    value = F32FromBits(Adversarial(bits >> 40, static_cast<uint32_t>(Random()), BitsOf(value)));
  }
  return values;
}

std::vector<uint16_t> TwinCheck::Halves(size_t count, FloatType type, Mix mix) {
  std::vector<uint16_t> halves(count);
  const std::vector<float> values = Floats(count, mix);
  for (size_t i = 0; i < count; ++i) {
    // Truncation keeps NaN payloads and BF16's denormals; F16 gets raw patterns now and then.
    const bool raw = mix == Mix::kAdversarial && i % 5 == 0;
    if (type == FloatType::kBf16) {
      halves[i] = static_cast<uint16_t>(BitsOf(values[i]) >> 16);
    } else {
      const float value = mix == Mix::kTiny ? values[i] * 0x1p58f : values[i];
      halves[i] = raw ? static_cast<uint16_t>(Random()) : F16::Store(value);
    }
  }
  return halves;
}

DeviceBuffer TwinCheck::UploadBytes(const void* host, size_t bytes) {
  DeviceBuffer buffer = OrDie(DeviceBuffer::Allocate(bytes > 0 ? bytes : 1));
  absl::Status status = CopyToDevice(buffer.data(), host, bytes, stream());
  if (status.ok()) status = SynchronizeStream(stream());
  if (!status.ok()) Die(status);
  return buffer;
}

void TwinCheck::DownloadBytes(const void* device, void* host, size_t bytes) {
  absl::Status status = CopyToHost(host, device, bytes, stream());
  if (status.ok()) status = SynchronizeStream(stream());
  if (!status.ok()) Die(status);
}

TwinCheck::Score& TwinCheck::ScoreOf(absl::string_view program) {
  return scores_[std::string(program)];
}

void TwinCheck::Ran(absl::string_view program, const std::string& label,
                    const absl::Status& status) {
  Score& score = ScoreOf(program);
  if (status.ok() || !score.first_failure.empty()) return;
  score.first_failure = absl::StrCat(label, ": ", status.ToString());
}

void TwinCheck::Expect(absl::string_view program, const std::string& label, bool holds) {
  Score& score = ScoreOf(program);
  ++score.cases;
  if (!holds && score.first_failure.empty()) score.first_failure = label;
}

void TwinCheck::Compare(absl::string_view program, const std::string& label, const void* want,
                        const void* got, size_t bytes, size_t element_bytes) {
  Score& score = ScoreOf(program);
  score.bytes += bytes;
  ++score.cases;
  if (memcmp(want, got, bytes) == 0 || !score.first_failure.empty()) return;
  const auto* left = static_cast<const uint8_t*>(want);
  const auto* right = static_cast<const uint8_t*>(got);
  size_t different = 0;
  size_t first = bytes;
  for (size_t at = 0; at < bytes; at += element_bytes) {
    if (memcmp(left + at, right + at, element_bytes) == 0) continue;
    ++different;
    if (first == bytes) first = at;
  }
  score.first_failure =
      absl::StrCat(label, ": ", different, " of ", bytes / element_bytes,
                   " elements differ, first at ", first / element_bytes, ": cpu ",
                   Hex(left + first, element_bytes), ", cuda ", Hex(right + first, element_bytes));
}

bool TwinCheck::Report() const {
  bool all_equal = true;
  for (const auto& [program, score] : scores_) {
    const bool equal = score.first_failure.empty();
    all_equal = all_equal && equal;
    printf("%-36s %12" PRIu64 " bytes %6" PRIu64 " cases  %s\n", program.c_str(), score.bytes,
           score.cases, equal ? "equal" : "DIFFERENT");
    if (!equal) printf("    %s\n", score.first_failure.c_str());
  }
  return all_equal;
}

}  // namespace lockstep::kernels
