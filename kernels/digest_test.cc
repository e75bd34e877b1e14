#include "kernels/digest.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

std::string Hex(const Digest256& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::vector<uint8_t> PatternBytes(uint64_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint64_t i = 0; i < n; ++i) {
    bytes[i] = static_cast<uint8_t>(i * i * 31 + i * 7 + (i >> 8) + (i >> 16) * 13);
  }
  return bytes;
}

std::vector<uint8_t> RandomBytes(std::mt19937_64& random, uint64_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// The definition, byte by byte: an independent reference for the vectorised sums.
std::vector<PageSum> NaivePages(const PageKeys& keys, const std::vector<uint8_t>& stream) {
  std::vector<PageSum> pages((stream.size() + kPageBytes - 1) / kPageBytes);
  for (uint64_t at = 0; at < stream.size(); ++at) {
    const uint64_t unit = at % kPageBytes / 4;
    const uint64_t m = uint64_t{stream[at]} << (8 * (at % 4));
    PageSum& page = pages[at / kPageBytes];
    page.lane0 += keys.words()[unit] * m;
    page.lane1 += keys.words()[unit + 1] * m;
    page.covered_bytes += 1;
  }
  return pages;
}

PageTable Digest(const PageKeys& keys, const std::vector<uint8_t>& stream, int threads = 1) {
  PageTable table(stream.size());
  EXPECT_TRUE(table.Add(keys, 0, stream, threads).ok());
  return table;
}

Digest256 Root(const TensorIdentity& identity, const std::vector<uint8_t>& stream) {
  const absl::StatusOr<Digest256> root =
      TensorRoot(identity, PublicPageKeys(), Digest(PublicPageKeys(), stream));
  EXPECT_TRUE(root.ok()) << root.status();
  return root.value_or(Digest256{});
}

// The constants below come from a program that shares nothing with this one: Python's
// hashlib.blake2b(digest_size=32), ChaCha20 written from RFC 8439 section 2.3 (nonce 0, counter
// from 0), and Python integers. Its input byte i is
// (i*i*31 + i*7 + (i >> 8) + (i >> 16)*13) & 255.
TEST(DigestGoldenTest, KeysMatchAnIndependentProgram) {
  EXPECT_EQ(Hex(PublicDigestKey()),
            "3d34c75a328d0618794a2c910f5ea6a1e53fde442ec8e7ff5c9e0b1407b67b74");
  EXPECT_EQ(Hex(PublicPageKeys().id()),
            "4b82f439fa3a80dc4250218c3ab96d35bb4ec467fd9d254d2b046ea3c0dbd77e");
  EXPECT_EQ(PublicPageKeys().words()[0], 0xd889bda4u);
  EXPECT_EQ(PublicPageKeys().words()[1], 0xeed3bd87u);
  EXPECT_EQ(PublicPageKeys().words()[16384], 0xa6970247u);
}

TEST(DigestGoldenTest, PagesAndRootsMatchAnIndependentProgram) {
  const std::vector<uint8_t> stream = PatternBytes(150'002);
  const PageTable table = Digest(PublicPageKeys(), stream);
  const std::vector<PageSum> want = {
      {0xe5aeec157dadeae0, 0x21fc81e6c415d3b5, 65536},
      {0x922ce2ed1fae3708, 0xa6f9f10799353724, 65536},
      {0xc5d192e3b25a5639, 0xd519ad441b54491f, 18930},
  };
  EXPECT_EQ(std::vector<PageSum>(table.pages().begin(), table.pages().end()), want);

  const Digest256 embed =
      Root({.name = "model.embed.weight", .dtype = "BF16", .shape = {75'001}}, stream);
  EXPECT_EQ(Hex(embed), "7412de18fea0b17ca18f2c5e05b1d8141f6376eaa0b98491f9f9a16a565b483a");
  Digest256 key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  const PageKeys keys(key);
  const absl::StatusOr<Digest256> scalar =
      TensorRoot({.run = "run-7", .version = 5, .name = "b", .dtype = "F32", .shape = {}}, keys,
                 Digest(keys, PatternBytes(4)));
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(Hex(*scalar), "81aa701032fe27a4e1081c9c1a5ff63a556e962cc896f14ef9bab53d3702cc4c");
  const Digest256 empty = Root({.name = "empty", .dtype = "U8", .shape = {3, 0}}, {});
  EXPECT_EQ(Hex(empty), "be88112f96a5be18414f30fd88e6de9315ab89084ab9c588d7b5277052244120");
  const absl::StatusOr<Digest256> manifest =
      ManifestRoot({{"model.embed.weight", embed}, {"b", *scalar}, {"empty", empty}});
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(Hex(*manifest), "d4892686153447a1fa03fd077a6da8d731c922c371ecd32937986e93c5aae28f");
  EXPECT_EQ(Hex(ContentDigest(stream)),
            "41b752d99dd5c2ee415bc78ff20903c3f6a115c1f0a85bb925ed56224c6e8eb6");
}

TEST(DigestTest, EveryVectorTargetAndThreadCountEqualsTheDefinition) {
  std::mt19937_64 random(11);
  for (uint64_t size : {0, 1, 3, 4, 5, 31, 64, 65, 4'099, 65'535, 65'536, 65'537, 300'007}) {
    const std::vector<uint8_t> stream = RandomBytes(random, size);
    const std::vector<PageSum> want = NaivePages(PublicPageKeys(), stream);
    ForEachSimdTarget([&](const char* target) {
      for (int threads : {1, 3}) {
        const PageTable table = Digest(PublicPageKeys(), stream, threads);
        EXPECT_EQ(std::vector<PageSum>(table.pages().begin(), table.pages().end()), want)
            << target << " size " << size << " threads " << threads;
      }
    });
  }
}

TEST(DigestTest, ExtremeWordsDoNotLoseCarries) {
  const std::vector<uint8_t> stream(kPageBytes, 0xFF);
  const std::vector<PageSum> want = NaivePages(PublicPageKeys(), stream);
  ForEachSimdTarget([&](const char* target) {
    EXPECT_EQ(Digest(PublicPageKeys(), stream).pages()[0], want[0]) << target;
  });
}

TEST(DigestTest, PiecesCutInsideUnitsAddUpInAnyOrder) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<uint8_t> stream = RandomBytes(random, 1 + random() % 200'000);
    std::vector<uint64_t> cuts = {0, stream.size()};
    for (int i = 0; i < 20; ++i) cuts.push_back(random() % (stream.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    PageTable sum(stream.size());
    for (size_t i : order) {
      PageTable part(stream.size());
      const absl::Span<const uint8_t> piece(stream.data() + cuts[i], cuts[i + 1] - cuts[i]);
      ASSERT_TRUE(part.Add(PublicPageKeys(), cuts[i], piece, 1 + seed % 3).ok());
      ASSERT_TRUE(sum.Merge(part).ok());
    }
    EXPECT_EQ(sum, Digest(PublicPageKeys(), stream)) << "seed " << seed;
    EXPECT_TRUE(sum.CheckCovered().ok());
  }
}

TEST(DigestTest, SwapsTruncationZeroFillDtypeShapeNameRunAndVersionChangeTheRoot) {
  std::mt19937_64 random(5);
  const std::vector<uint8_t> stream = RandomBytes(random, 3 * kPageBytes);
  const TensorIdentity identity{.name = "w", .dtype = "BF16", .shape = {3, 32'768}};
  const Digest256 root = Root(identity, stream);

  std::vector<uint8_t> swapped = stream;
  std::swap_ranges(swapped.begin(), swapped.begin() + kPageBytes, swapped.begin() + kPageBytes);
  EXPECT_NE(Root(identity, swapped), root);
  std::vector<uint8_t> units_swapped = stream;
  std::swap_ranges(units_swapped.begin(), units_swapped.begin() + 4, units_swapped.begin() + 4);
  EXPECT_NE(Root(identity, units_swapped), root);
  std::vector<uint8_t> truncated(stream.begin(), stream.end() - kPageBytes);
  EXPECT_NE(Root(identity, truncated), root);
  std::vector<uint8_t> zero_filled = stream;
  std::fill(zero_filled.end() - kPageBytes, zero_filled.end(), 0);
  EXPECT_NE(Root(identity, zero_filled), root);
  std::vector<uint8_t> last_bit = stream;
  last_bit.back() ^= 0x80;
  EXPECT_NE(Root(identity, last_bit), root);

  TensorIdentity other = identity;
  other.dtype = "F16";
  EXPECT_NE(Root(other, stream), root);
  other = identity;
  other.shape = {32'768, 3};
  EXPECT_NE(Root(other, stream), root);
  other = identity;
  other.name = "v";
  EXPECT_NE(Root(other, stream), root);
  other = identity;
  other.run = "r";
  EXPECT_NE(Root(other, stream), root);
  other = identity;
  other.version = 1;
  EXPECT_NE(Root(other, stream), root);
}

TEST(DigestTest, ManifestRootFollowsNamesNotOrderAndRefusesDuplicates) {
  const Digest256 a = {1};
  const Digest256 b = {2};
  const auto root = ManifestRoot({{"a", a}, {"b", b}});
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(*ManifestRoot({{"b", b}, {"a", a}}), *root);
  EXPECT_NE(*ManifestRoot({{"a", b}, {"b", a}}), *root);
  EXPECT_FALSE(ManifestRoot({{"a", a}, {"a", b}}).ok());
}

TEST(DigestTest, MissingOrRepeatedBytesHaveNoRoot) {
  const std::vector<uint8_t> stream(100'000, 0);
  PageTable table(stream.size());
  const absl::Span<const uint8_t> bytes(stream);
  ASSERT_TRUE(table.Add(PublicPageKeys(), 0, bytes.first(99'999), 1).ok());
  const TensorIdentity identity{.name = "w", .dtype = "U8", .shape = {100'000}};
  const absl::StatusOr<Digest256> missing = TensorRoot(identity, PublicPageKeys(), table);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(missing.status().message().find("'w'"), std::string::npos);
  ASSERT_TRUE(table.Add(PublicPageKeys(), 99'999, bytes.first(1), 1).ok());
  EXPECT_TRUE(TensorRoot(identity, PublicPageKeys(), table).ok());
  ASSERT_TRUE(table.Add(PublicPageKeys(), 99'999, bytes.first(1), 1).ok());
  EXPECT_FALSE(TensorRoot(identity, PublicPageKeys(), table).ok());
}

TEST(DigestTest, BytesOutsideTheStreamAndAbsurdPartsAreRefused) {
  const std::vector<uint8_t> bytes(16, 1);
  PageTable table(10);
  EXPECT_FALSE(table.Add(PublicPageKeys(), 0, bytes, 1).ok());
  EXPECT_FALSE(table.Add(PublicPageKeys(), ~uint64_t{0}, bytes, 1).ok());
  EXPECT_FALSE(table.Merge(PageTable(11)).ok());
  EXPECT_FALSE(table.MergePage(0, {1, 1, ~uint64_t{0}}).ok());
  EXPECT_FALSE(table.MergePage(1, {1, 1, 1}).ok());
  EXPECT_TRUE(table.MergePage(0, {1, 1, 10}).ok());
  EXPECT_FALSE(table.MergePage(0, {1, 1, 1}).ok());
}

}  // namespace
}  // namespace lockstep::kernels
