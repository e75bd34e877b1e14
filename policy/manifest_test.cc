#include "policy/manifest.h"

#include <set>

#include "gtest/gtest.h"
#include "policy/refusal_list.h"
#include "policy/refusal_testing.h"
#include "policy/utf8.h"

namespace lockstep {
namespace {

TensorSpec Tensor(std::string name, std::vector<uint64_t> shape, Dtype dtype = Dtype::kBF16,
                  TensorOrigin origin = TensorOrigin::kSynced) {
  return {std::move(name), dtype, std::move(shape), origin};
}

Manifest TiedManifest() {
  Manifest manifest;
  manifest.tensors = {Tensor("a.embed", {64, 128}), Tensor("b.norm", {128}),
                      Tensor("c.head", {64, 128})};
  manifest.alias_groups = {{"a.embed", "c.head"}};
  return manifest;
}

TEST(DtypeTest, EveryNameRoundTripsAndIsUnique) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(Dtype::kF8E5M2Fnuz); ++i) {
    const Dtype dtype = static_cast<Dtype>(i);
    const absl::string_view name = DtypeName(dtype);
    EXPECT_TRUE(names.insert(std::string(name)).second) << name;
    EXPECT_EQ(DtypeFromName(name), dtype) << name;
    EXPECT_GT(DtypeBits(dtype), 0u) << name;
  }
  EXPECT_EQ(names.size(), 22u);
}

TEST(DtypeTest, SizesAreThoseOfTheFormat) {
  EXPECT_EQ(DtypeBits(Dtype::kBool), 8u);
  EXPECT_EQ(DtypeBits(Dtype::kF4), 4u);
  EXPECT_EQ(DtypeBits(Dtype::kF6E3M2), 6u);
  EXPECT_EQ(DtypeBytes(Dtype::kF8E8M0), 1u);
  EXPECT_EQ(DtypeBytes(Dtype::kBF16), 2u);
  EXPECT_EQ(DtypeBytes(Dtype::kF32), 4u);
  EXPECT_EQ(DtypeBytes(Dtype::kC64), 8u);
}

TEST(DtypeTest, UnknownAndWrongCaseNamesAreNoDtype) {
  EXPECT_EQ(DtypeFromName("bf16"), std::nullopt);
  EXPECT_EQ(DtypeFromName("F128"), std::nullopt);
  EXPECT_EQ(DtypeFromName(""), std::nullopt);
}

TEST(TensorBytesTest, ScalarEmptyAndPackedTensors) {
  EXPECT_EQ(*TensorBytes(Tensor("s", {}, Dtype::kF32)), 4u);
  EXPECT_EQ(*TensorBytes(Tensor("z", {0, 7})), 0u);
  EXPECT_EQ(*TensorBytes(Tensor("p", {3, 2}, Dtype::kF4)), 3u);
  EXPECT_EQ(TensorBytes(Tensor("p", {3}, Dtype::kF4)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TensorBytesTest, OverflowIsAnErrorUnlessADimensionIsZero) {
  const uint64_t big = uint64_t{1} << 40;
  EXPECT_EQ(TensorBytes(Tensor("x", {big, big})).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*TensorBytes(Tensor("x", {big, big, 0})), 0u);
}

TEST(CheckManifestTest, WellFormedManifestPasses) {
  EXPECT_TRUE(CheckManifest(TiedManifest()).empty());
}

TEST(CheckManifestTest, EmptyManifestIsRefused) {
  EXPECT_TRUE(Mentions(CheckManifest({}), RefusalCode::kBadMessage, "", "no tensors"));
}

TEST(CheckManifestTest, DuplicateAndUnsortedNamesAreRefused) {
  Manifest manifest = TiedManifest();
  manifest.tensors[1].name = "a.embed";
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "a.embed", "twice"));
  manifest = TiedManifest();
  std::swap(manifest.tensors[0], manifest.tensors[1]);
  EXPECT_TRUE(
      Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "a.embed", "out of order"));
}

TEST(CheckManifestTest, NamesMustBeBoundedPrintableUtf8) {
  const auto with_name = [](std::string name) {
    Manifest manifest;
    manifest.tensors = {Tensor(std::move(name), {1})};
    return CheckManifest(manifest);
  };
  EXPECT_TRUE(with_name("schicht.\xC3\xA4").empty());
  EXPECT_FALSE(with_name("").empty());
  EXPECT_FALSE(with_name("a\nb").empty());
  EXPECT_FALSE(with_name("a\xFF").empty());
  EXPECT_TRUE(with_name(std::string(kMaxTensorNameBytes, 'x')).empty());
  const auto refusals = with_name(std::string(kMaxTensorNameBytes + 1, 'x'));
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].code, RefusalCode::kLimitExceeded);
  EXPECT_LT(refusals[0].message.size(), 300u);
}

TEST(CheckManifestTest, RankOverflowAndTotalAreLimited) {
  Manifest manifest;
  manifest.tensors = {Tensor("r", std::vector<uint64_t>(kMaxTensorRank + 1, 1))};
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kLimitExceeded, "r", "dimensions"));
  manifest.tensors = {Tensor("o", {uint64_t{1} << 40, uint64_t{1} << 40})};
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kLimitExceeded, "o", "overflows"));
  manifest.tensors = {Tensor("a", {uint64_t{1} << 44}), Tensor("b", {uint64_t{1} << 44}),
                      Tensor("c", {1})};
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kLimitExceeded, "", "together"));
  manifest.tensors.pop_back();
  EXPECT_TRUE(CheckManifest(manifest).empty()) << FormatRefusals(CheckManifest(manifest));
}

TEST(CheckManifestTest, DtypeOutsideTheFormatIsRefused) {
  Manifest manifest;
  manifest.tensors = {Tensor("d", {1}, static_cast<Dtype>(99))};
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "d", "dtype number 99"));
}

TEST(CheckManifestTest, AliasGroupsMustNameEqualDistinctTensors) {
  Manifest manifest = TiedManifest();
  manifest.alias_groups = {{"a.embed"}};
  EXPECT_TRUE(
      Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "a.embed", "fewer than two"));
  manifest.alias_groups = {{"a.embed", "zzz"}};
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "zzz", "no tensor"));
  manifest.alias_groups = {{"a.embed", "b.norm"}};
  EXPECT_TRUE(Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "b.norm", "[64,128]"));
  manifest.alias_groups = {{"c.head", "a.embed"}};
  EXPECT_TRUE(
      Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "a.embed", "out of order"));
  manifest = TiedManifest();
  manifest.tensors.push_back(Tensor("d.copy", {64, 128}));
  manifest.alias_groups = {{"a.embed", "c.head"}, {"c.head", "d.copy"}};
  EXPECT_TRUE(
      Mentions(CheckManifest(manifest), RefusalCode::kBadMessage, "c.head", "two alias groups"));
}

TEST(LayoutDigestTest, ChangesWithEveryField) {
  std::set<std::string> seen = {ToHex(LayoutDigest(TiedManifest()))};
  const auto is_new = [&seen](const Manifest& manifest) {
    return seen.insert(ToHex(LayoutDigest(manifest))).second;
  };
  Manifest manifest = TiedManifest();
  manifest.tensors[1].name = "b.norn";
  EXPECT_TRUE(is_new(manifest));
  manifest = TiedManifest();
  manifest.tensors[1].dtype = Dtype::kF16;
  EXPECT_TRUE(is_new(manifest));
  manifest = TiedManifest();
  manifest.tensors[1].shape = {128, 1};
  EXPECT_TRUE(is_new(manifest));
  manifest = TiedManifest();
  manifest.tensors[1].origin = TensorOrigin::kFrozen;
  EXPECT_TRUE(is_new(manifest));
  manifest = TiedManifest();
  manifest.alias_groups.clear();
  EXPECT_TRUE(is_new(manifest));
  manifest = TiedManifest();
  manifest.tensors.pop_back();
  EXPECT_TRUE(is_new(manifest));
  EXPECT_FALSE(is_new(TiedManifest()));
}

TEST(CompareManifestsTest, EqualManifestsAgree) {
  EXPECT_TRUE(CompareManifests(TiedManifest(), TiedManifest()).empty());
}

TEST(CompareManifestsTest, TensorMissingOnEitherSideIsNamed) {
  Manifest shorter = TiedManifest();
  shorter.tensors.erase(shorter.tensors.begin() + 1);
  EXPECT_TRUE(Mentions(CompareManifests(TiedManifest(), shorter), RefusalCode::kManifestMismatch,
                       "b.norm", "unknown to the sampler"));
  EXPECT_TRUE(Mentions(CompareManifests(shorter, TiedManifest()), RefusalCode::kManifestMismatch,
                       "b.norm", "never published"));
}

TEST(CompareManifestsTest, DtypeShapeOriginAndTiesAreCompared) {
  Manifest other = TiedManifest();
  other.tensors[1].dtype = Dtype::kF32;
  EXPECT_TRUE(Mentions(CompareManifests(TiedManifest(), other), RefusalCode::kManifestMismatch,
                       "b.norm", "F32 [128]"));
  other = TiedManifest();
  other.tensors[1].shape = {64, 2};
  EXPECT_TRUE(Mentions(CompareManifests(TiedManifest(), other), RefusalCode::kManifestMismatch,
                       "b.norm", "[64,2]"));
  other = TiedManifest();
  other.tensors[1].origin = TensorOrigin::kFrozen;
  EXPECT_TRUE(Mentions(CompareManifests(TiedManifest(), other), RefusalCode::kManifestMismatch,
                       "b.norm", "frozen"));
  other = TiedManifest();
  other.alias_groups.clear();
  const auto refusals = CompareManifests(TiedManifest(), other);
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kManifestMismatch, "a.embed", "not tied"));
  EXPECT_TRUE(Mentions(refusals, RefusalCode::kManifestMismatch, "c.head", "not tied"));
}

TEST(CompareManifestsTest, SamplerMayHoldDerivedTensorsOfItsOwn) {
  Manifest sampler = TiedManifest();
  sampler.tensors.push_back(Tensor("d.fused", {3}, Dtype::kBF16, TensorOrigin::kDerived));
  EXPECT_TRUE(CompareManifests(TiedManifest(), sampler).empty());
  EXPECT_FALSE(CompareManifests(sampler, TiedManifest()).empty());
}

TEST(CompareManifestsTest, ManyDifferencesAreCountedNotListed) {
  Manifest trainer;
  Manifest sampler;
  for (int i = 0; i < 1000; ++i) {
    trainer.tensors.push_back(Tensor("a" + std::to_string(1000 + i), {1}));
    sampler.tensors.push_back(Tensor("b" + std::to_string(1000 + i), {1}));
  }
  const auto refusals = CompareManifests(trainer, sampler);
  ASSERT_EQ(refusals.size(), kMaxListedRefusals + 1);
  EXPECT_NE(refusals.back().message.find("1936 more"), std::string::npos);
}

TEST(ArenaLayoutTest, SyncedTensorsAreAlignedAndOthersTakeNoRoom) {
  Manifest manifest;
  manifest.tensors = {Tensor("a", {3}), Tensor("b", {200}, Dtype::kBF16, TensorOrigin::kFrozen),
                      Tensor("c", {200}), Tensor("d", {0}), Tensor("e", {1}, Dtype::kU8)};
  const ArenaLayout layout = ComputeArenaLayout(manifest);
  EXPECT_EQ(layout.offsets, (std::vector<uint64_t>{0, 256, 256, 768, 768}));
  EXPECT_EQ(layout.sizes, (std::vector<uint64_t>{6, 0, 400, 0, 1}));
  EXPECT_EQ(layout.total_bytes, 1024u);
  EXPECT_EQ(layout.payload_bytes, 407u);
}

TEST(Utf8Test, AcceptsWellFormedTextOnly) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("plain"));
  EXPECT_TRUE(IsValidUtf8("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF"));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

}  // namespace
}  // namespace lockstep
