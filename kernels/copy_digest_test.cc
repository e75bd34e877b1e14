#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/digest.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

template <class T>
std::vector<uint8_t> AsBytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Counts NaNs by the meaning of the format, not by its bits.
struct Case {
  NanFormat format;
  std::vector<uint8_t> bytes;
  uint64_t nans;
};

std::vector<Case> NanCases() {
  std::mt19937_64 random(3);
  std::vector<Case> cases;
  std::vector<uint16_t> halves(65'536 + 40'001);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  // All bit patterns once: 2 * (2^7 - 1) NaNs in bf16, 2 * (2^10 - 1) in f16; the rest repeats
  // patterns 0..40000, of which 0x7F81..0x7FFF (bf16) and 0x7C01..0x7FFF (f16) are NaNs.
  cases.push_back({NanFormat::kBf16, AsBytes(halves), 2 * 127 + 127});
  cases.push_back({NanFormat::kF16, AsBytes(halves), 2 * 1023 + 1023});
  std::vector<float> floats(50'003);
  std::vector<double> doubles(30'001);
  uint64_t float_nans = 0;
  uint64_t double_nans = 0;
  for (float& x : floats) {
    const uint32_t bits = static_cast<uint32_t>(random()) | (random() % 4 == 0 ? 0x7F800000u : 0u);
    memcpy(&x, &bits, sizeof(x));
  }
  floats[7] = std::numeric_limits<float>::infinity();
  for (double& x : doubles) {
    const uint64_t bits = random() | (random() % 4 == 0 ? 0x7FF0000000000000u : 0u);
    memcpy(&x, &bits, sizeof(x));
    if (std::isnan(x)) ++double_nans;
  }
  for (float x : floats) float_nans += std::isnan(x) ? 1 : 0;
  cases.push_back({NanFormat::kF32, AsBytes(floats), float_nans});
  cases.push_back({NanFormat::kF64, AsBytes(doubles), double_nans});
  cases.push_back({NanFormat::kNone, AsBytes(floats), 0});
  cases.push_back({NanFormat::kBf16, AsBytes(std::vector<uint16_t>(200'001, 0xFFC1)), 200'001});
  cases.push_back({NanFormat::kBf16, {}, 0});
  return cases;
}

TEST(CopyAndDigestTest, CopiesDigestsAndCountsNansInOneCallForAllTasks) {
  const std::vector<Case> cases = NanCases();
  ForEachSimdTarget([&](const char* target) {
    for (int threads : {1, 2, 5}) {
      for (bool copy : {false, true}) {
        for (size_t misalign : {0, 1}) {
          std::vector<std::vector<uint8_t>> copies;
          std::vector<DigestTask> tasks;
          for (const Case& c : cases) copies.emplace_back(c.bytes.size() + misalign, 0xA5);
          for (size_t i = 0; i < cases.size(); ++i) {
            tasks.push_back({cases[i].bytes.data(), copy ? copies[i].data() + misalign : nullptr,
                             cases[i].bytes.size(), cases[i].format});
          }
          const std::vector<DigestResult> results = CopyAndDigest(PublicPageKeys(), tasks, threads);
          ASSERT_EQ(results.size(), cases.size());
          for (size_t i = 0; i < cases.size(); ++i) {
            PageTable want(cases[i].bytes.size());
            ASSERT_TRUE(want.Add(PublicPageKeys(), 0, cases[i].bytes, 1).ok());
            EXPECT_EQ(results[i].table, want) << target << " task " << i;
            EXPECT_EQ(results[i].nan_count, cases[i].nans) << target << " task " << i;
            if (!copy) continue;
            EXPECT_TRUE(std::equal(cases[i].bytes.begin(), cases[i].bytes.end(),
                                   copies[i].begin() + misalign))
                << target << " task " << i;
          }
        }
      }
    }
  });
}

TEST(CopyAndDigestTest, LargeCopyThatBypassesTheCacheIsExact) {
  std::mt19937_64 random(9);
  std::vector<uint64_t> words((9u << 20) / 8 + 3);
  for (uint64_t& word : words) word = random();
  std::vector<uint64_t> copy(words.size());
  const DigestTask task{reinterpret_cast<const uint8_t*>(words.data()),
                        reinterpret_cast<uint8_t*>(copy.data()), words.size() * 8 - 3,
                        NanFormat::kF32};
  const std::vector<DigestResult> results = CopyAndDigest(PublicPageKeys(), {task}, 2);
  EXPECT_EQ(memcmp(words.data(), copy.data(), task.bytes), 0);
  PageTable want(task.bytes);
  ASSERT_TRUE(want.Add(PublicPageKeys(), 0, {task.source, task.bytes}, 1).ok());
  EXPECT_EQ(results[0].table, want);
}

TEST(CopyAndDigestTest, SourceAsDestinationDigestsInPlace) {
  std::vector<uint8_t> bytes(100'001, 7);
  const std::vector<uint8_t> before = bytes;
  const DigestTask task{bytes.data(), bytes.data(), bytes.size(), NanFormat::kNone};
  const std::vector<DigestResult> results = CopyAndDigest(PublicPageKeys(), {task}, 1);
  PageTable want(bytes.size());
  ASSERT_TRUE(want.Add(PublicPageKeys(), 0, bytes, 1).ok());
  EXPECT_EQ(results[0].table, want);
  EXPECT_EQ(bytes, before);
}

}  // namespace
}  // namespace lockstep::kernels
