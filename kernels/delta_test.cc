#include "kernels/delta.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::kernels {
namespace {

const DeltaRoots kRoots = {.base = {1, 2, 3}, .target = {4, 5, 6}};

// Two versions of some tensors.
struct Versions {
  std::vector<DeltaTensor> tensors;
  std::vector<std::vector<uint8_t>> base;
  std::vector<std::vector<uint8_t>> target;

  void Add(const std::string& name, const std::string& dtype, uint32_t element_bytes,
           std::vector<uint8_t> from, std::vector<uint8_t> to) {
    tensors.push_back({name, dtype, element_bytes, from.size()});
    base.push_back(std::move(from));
    target.push_back(std::move(to));
  }

  std::vector<DeltaSource> Sources() const {
    std::vector<DeltaSource> sources;
    for (size_t i = 0; i < tensors.size(); ++i) sources.push_back({tensors[i], base[i], target[i]});
    return sources;
  }
};

std::vector<uint8_t> RandomBytes(std::mt19937_64& random, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Tensors of every element size; a share of the elements changes, from none to all.
Versions RandomVersions(uint64_t seed) {
  std::mt19937_64 random(seed);
  Versions versions;
  const uint32_t sizes[] = {1, 2, 4, 8};
  for (int i = 0; i < 5; ++i) {
    const uint32_t element_bytes = sizes[random() % 4];
    std::vector<uint8_t> base = RandomBytes(random, random() % 40'000 * element_bytes);
    std::vector<uint8_t> target = base;
    const uint64_t one_in[] = {1, 2, 50, 3'000, 1'000'000};
    const uint64_t rarity = one_in[random() % 5];
    for (size_t at = 0; at < target.size(); at += element_bytes) {
      if (random() % rarity == 0) target[at + random() % element_bytes] ^= 1 + random() % 255;
    }
    versions.Add("t" + std::to_string(i), "X", element_bytes, base, target);
  }
  versions.Add("empty", "BF16", 2, {}, {});
  return versions;
}

absl::Status OpenAndApply(const std::vector<uint8_t>& patch, const Versions& versions,
                          std::vector<std::vector<uint8_t>>& buffers, int threads) {
  const absl::StatusOr<DeltaPatch> opened = DeltaPatch::Open(patch, versions.tensors, kRoots.base);
  if (!opened.ok()) return opened.status();
  std::vector<absl::Span<uint8_t>> spans;
  for (auto& buffer : buffers) spans.push_back(absl::MakeSpan(buffer));
  return opened->Apply(spans, threads);
}

TEST(DeltaTest, ApplyingGivesTheTargetBytesAndTwiceIsHarmless) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Versions versions = RandomVersions(seed);
    const auto patch = MakeDelta(kRoots, versions.Sources(), kDeltaLevel, 1 + seed % 3);
    ASSERT_TRUE(patch.ok()) << patch.status();
    std::vector<std::vector<uint8_t>> buffers = versions.base;
    for (int time = 0; time < 2; ++time) {
      const absl::Status status = OpenAndApply(*patch, versions, buffers, 1 + seed % 3);
      ASSERT_TRUE(status.ok()) << status << " seed " << seed;
      EXPECT_EQ(buffers, versions.target) << "seed " << seed;
    }
  }
}

TEST(DeltaTest, LayoutDoesNotDependOnThreadsAndSurvivesPacking) {
  const Versions versions = RandomVersions(99);
  const auto one = MakeDeltaLayout(kRoots, versions.Sources(), 1);
  const auto many = MakeDeltaLayout(kRoots, versions.Sources(), 7);
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_EQ(*one, *many);
  const auto packed = PackDelta(*one, kDeltaLevel, 2);
  ASSERT_TRUE(packed.ok());
  const auto unpacked = UnpackDelta(*packed, versions.tensors);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(*unpacked, *one);
}

TEST(DeltaTest, LayoutIsTheDocumentedOne) {
  Versions versions;
  std::vector<uint8_t> base(kPageBytes + 4, 0);
  std::vector<uint8_t> target = base;
  target[2 * 3] = 0x34;  // element 3 of page 0
  target[2 * 3 + 1] = 0x12;
  target[2 * (4 + 254)] = 0x56;        // gap 254, the last short one
  target[2 * (259 + 255) + 1] = 0x78;  // gap 255, the first long one
  target[kPageBytes + 2] = 0x9A;       // element 1 of page 1
  versions.Add("w", "BF16", 2, base, target);
  const auto layout = MakeDeltaLayout(kRoots, versions.Sources(), 1);
  ASSERT_TRUE(layout.ok());
  std::string head = "LSDELTA1";
  head.append(reinterpret_cast<const char*>(kRoots.base.data()), 32);
  head.append(reinterpret_cast<const char*>(kRoots.target.data()), 32);
  const auto u32 = [&](uint32_t value) {
    head.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  u32(1);
  u32(1);
  head += "w";
  u32(4);
  head += "BF16";
  u32(2);
  u32(kPageBytes + 4);
  u32(0);
  u32(3);
  u32(5);
  u32(1);
  u32(1);
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(layout->sections[kDeltaHead], Bytes(head.begin(), head.end()));
  EXPECT_EQ(layout->sections[kDeltaGaps], (Bytes{3, 254, 255, 255, 0, 1}));
  EXPECT_EQ(layout->sections[kDeltaFirstPlane], (Bytes{0x34, 0x56, 0x00, 0x9A}));
  EXPECT_EQ(layout->sections[kDeltaFirstPlane + 1], (Bytes{0x12, 0x00, 0x78, 0x00}));
  for (uint64_t s = kDeltaFirstPlane + 2; s < kDeltaSections; ++s) {
    EXPECT_TRUE(layout->sections[s].empty());
  }
}

TEST(DeltaTest, PageFallsBackToRawOnlyWhenThatIsSmaller) {
  // n changes of one byte with no gap between them take 2n bytes before zstd.
  const std::vector<uint8_t> base(kPageBytes, 0);
  for (const auto& [changed, raw] :
       std::vector<std::pair<size_t, uint64_t>>{{kPageBytes / 2, 0}, {kPageBytes / 2 + 1, 1}}) {
    std::vector<uint8_t> target = base;
    std::fill_n(target.begin(), changed, uint8_t{1});
    Versions versions;
    versions.Add("w", "U8", 1, base, target);
    auto layout = MakeDeltaLayout(kRoots, versions.Sources(), 1);
    ASSERT_TRUE(layout.ok());
    const auto patch = DeltaPatch::FromLayout(*layout, versions.tensors, kRoots.base);
    ASSERT_TRUE(patch.ok()) << patch.status();
    EXPECT_EQ(patch->raw_pages(), raw);
    std::vector<uint8_t> buffer = base;
    ASSERT_TRUE(patch->Apply({absl::MakeSpan(buffer)}, 1).ok());
    EXPECT_EQ(buffer, target);
  }
}

TEST(DeltaTest, OtherBaseOtherTensorsAndOtherLengthsAreRefusedUntouched) {
  const Versions versions = RandomVersions(7);
  const auto patch = MakeDelta(kRoots, versions.Sources(), kDeltaLevel, 1);
  ASSERT_TRUE(patch.ok());
  EXPECT_EQ(DeltaPatch::Open(*patch, versions.tensors, kRoots.target).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::vector<DeltaTensor> other = versions.tensors;
  other[0].dtype = "Y";
  EXPECT_EQ(DeltaPatch::Open(*patch, other, kRoots.base).status().code(),
            absl::StatusCode::kInvalidArgument);
  other = versions.tensors;
  other.pop_back();
  EXPECT_FALSE(DeltaPatch::Open(*patch, other, kRoots.base).ok());
  std::vector<std::vector<uint8_t>> buffers = versions.base;
  buffers.back().push_back(0);
  const std::vector<std::vector<uint8_t>> before = buffers;
  EXPECT_FALSE(OpenAndApply(*patch, versions, buffers, 1).ok());
  EXPECT_EQ(buffers, before);
  Versions odd;
  odd.Add("w", "BF16", 2, {1, 2, 3}, {1, 2, 3});
  EXPECT_FALSE(MakeDelta(kRoots, odd.Sources(), kDeltaLevel, 1).ok());
  Versions lying = versions;
  lying.target[0].push_back(0);
  EXPECT_FALSE(MakeDelta(kRoots, lying.Sources(), kDeltaLevel, 1).ok());
}

TEST(DeltaTest, EveryDamagedByteAndEveryTruncationIsRefused) {
  std::mt19937_64 random(13);
  Versions versions;
  const std::vector<uint8_t> base = RandomBytes(random, 6'000);
  std::vector<uint8_t> target = base;
  for (size_t at = 0; at < target.size(); at += 100) target[at] ^= 1;
  versions.Add("w", "F16", 2, base, target);
  const auto patch = MakeDelta(kRoots, versions.Sources(), kDeltaLevel, 1);
  ASSERT_TRUE(patch.ok());
  for (size_t at = 0; at < patch->size(); ++at) {
    std::vector<uint8_t> damaged = *patch;
    damaged[at] ^= 1 << (at % 8);
    EXPECT_EQ(DeltaPatch::Open(damaged, versions.tensors, kRoots.base).status().code(),
              absl::StatusCode::kDataLoss)
        << at;
    EXPECT_FALSE(
        DeltaPatch::Open(absl::MakeSpan(*patch).first(at), versions.tensors, kRoots.base).ok());
  }
}

TEST(DeltaTest, LayoutsThatLieAreRefused) {
  Versions versions;
  std::vector<uint8_t> target(2'000, 0);
  target[2] = 1;
  target[1'998] = 1;
  versions.Add("w", "U16", 2, std::vector<uint8_t>(2'000, 0), target);
  const auto good = MakeDeltaLayout(kRoots, versions.Sources(), 1);
  ASSERT_TRUE(good.ok());
  const size_t entry = good->sections[kDeltaHead].size() - 8;
  const auto refused = [&](auto damage) {
    DeltaLayout layout = *good;
    damage(layout);
    return !DeltaPatch::FromLayout(layout, versions.tensors, kRoots.base).ok();
  };
  EXPECT_FALSE(refused([](DeltaLayout&) {}));
  // Position 1 more than the page's last, a long code of a short gap, a gap code left over.
  EXPECT_TRUE(refused([](DeltaLayout& layout) { layout.sections[kDeltaGaps][0] += 1; }));
  EXPECT_TRUE(refused([](DeltaLayout& layout) { layout.sections[kDeltaGaps] = {1, 255, 9, 0}; }));
  EXPECT_TRUE(refused([](DeltaLayout& layout) { layout.sections[kDeltaGaps] = {1, 2, 3, 4}; }));
  EXPECT_TRUE(refused([](DeltaLayout& layout) { layout.sections[kDeltaRaw] = {1}; }));
  EXPECT_TRUE(refused([](DeltaLayout& layout) { layout.sections[kDeltaFirstPlane].pop_back(); }));
  EXPECT_TRUE(refused([&](DeltaLayout& layout) { layout.sections[kDeltaHead][entry] = 0; }));
  EXPECT_TRUE(refused([&](DeltaLayout& layout) { layout.sections[kDeltaHead][entry + 3] = 1; }));
  EXPECT_TRUE(refused([&](DeltaLayout& layout) { layout.sections[kDeltaHead].push_back(0); }));
  EXPECT_TRUE(refused([&](DeltaLayout& layout) { layout.sections[kDeltaHead][4] ^= 1; }));
}

}  // namespace
}  // namespace lockstep::kernels
