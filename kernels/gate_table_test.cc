#include "kernels/gate_table.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/silu_ieee.h"

namespace lockstep::kernels {
namespace {

std::string Hex(const Digest256& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

TEST(GateTableTest, EveryKnownRealisationHasItsPublishedDigest) {
  ASSERT_EQ(KnownSiluRealisations().size(), 5u);
  for (const SiluRealisation& known : KnownSiluRealisations()) {
    absl::StatusOr<const GateTable*> table = FindSiluTable(known.id, known.gate);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(Hex((*table)->digest()), known.digest_hex);
    EXPECT_EQ((*table)->id(), known.id);
    EXPECT_EQ((*table)->gate(), known.gate);
    EXPECT_EQ(*FindSiluTable(known.id, known.gate), *table) << "made twice";
  }
}

TEST(GateTableTest, RecordedTablesDifferFromOneAnother) {
  std::map<std::string, std::string> seen;
  for (const SiluRealisation& known : KnownSiluRealisations()) {
    EXPECT_TRUE(seen.emplace(known.digest_hex, known.id).second) << known.id;
  }
  const auto triton = (*FindSiluTable(kSiluSm90Triton, FloatType::kBf16))->values();
  const auto cuda = (*FindSiluTable(kSiluTorchCuda, FloatType::kBf16))->values();
  int differing = 0;
  for (size_t i = 0; i < kGateTableEntries; ++i) differing += BitsOf(triton[i]) != BitsOf(cuda[i]);
  EXPECT_EQ(differing, 2051);
}

TEST(GateTableTest, IeeeOverflowOfExpGivesNegativeZeroAndMinusInfinityGivesNan) {
  const auto bf16 = (*FindSiluTable(kSiluIeee, FloatType::kBf16))->values();
  int negative_zeros = 0;
  for (uint32_t i = 0; i < kGateTableEntries; ++i) {
    const float g = Bf16::Load(static_cast<uint16_t>(i));
    if (!(g <= -89.0f) || std::isinf(g)) continue;
    ++negative_zeros;
    ASSERT_EQ(BitsOf(bf16[i]), 0x80000000u) << i;
  }
  EXPECT_EQ(negative_zeros, 15566);
  EXPECT_EQ(BitsOf(bf16[0xFF80]), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(bf16[0x7F80]), 0x7F800000u);
  EXPECT_EQ(BitsOf(bf16[0xFFFF]), kF32CanonicalNan);
  EXPECT_EQ(BitsOf(bf16[0x8000]), 0x80000000u);
  EXPECT_EQ(BitsOf(SiluIeee(-88.75f)), 0x80000000u);
  EXPECT_NE(BitsOf(SiluIeee(-88.6875f)), 0x80000000u);
  EXPECT_EQ(BitsOf(SiluIeee(-std::numeric_limits<float>::infinity())), kF32CanonicalNan);
}

TEST(GateTableTest, SigmoidTableHoldsTheComputedValues) {
  const GateTable* bf16 = *FindSigmoidTable(FloatType::kBf16);
  const GateTable* f16 = *FindSigmoidTable(FloatType::kF16);
  for (uint32_t i = 0; i < kGateTableEntries; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    ASSERT_EQ(BitsOf(bf16->values()[i]), BitsOf(SigmoidIeee(Bf16::Load(bits)))) << i;
    ASSERT_EQ(BitsOf(f16->values()[i]), BitsOf(SigmoidIeee(F16::Load(bits)))) << i;
  }
  EXPECT_EQ(BitsOf(bf16->values()[0xFF80]), 0u);  // 1 / (1 + inf)
  EXPECT_EQ(FindSigmoidTable(FloatType::kF32).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GateTableTest, UnknownRealisationIsRefusedWithTheKnownOnes) {
  const absl::Status status = FindSiluTable("silu/sm80_triton@v1", FloatType::kBf16).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  for (const SiluRealisation& known : KnownSiluRealisations()) {
    EXPECT_TRUE(absl::StrContains(status.message(), known.id)) << status;
  }
}

TEST(GateTableTest, RecordedRealisationIsRefusedForAnotherGateType) {
  for (FloatType gate : {FloatType::kF16, FloatType::kF32}) {
    const absl::Status status = FindSiluTable(kSiluTorchCuda, gate).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), "BF16")) << status;
  }
}

TEST(GateTableTest, TableFromAUsersValuesCanonicalisesNansBeforeItsDigest) {
  const auto ieee = (*FindSiluTable(kSiluIeee, FloatType::kBf16))->values();
  std::vector<float> values(ieee.begin(), ieee.end());
  for (float& value : values) {
    if (std::isnan(value)) value = F32FromBits(0xFFC12345);
  }
  absl::StatusOr<GateTable> mine = GateTable::FromValues("silu/mine@v1", FloatType::kBf16, values);
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_EQ(mine->digest(), (*FindSiluTable(kSiluIeee, FloatType::kBf16))->digest());
  values[5] = 1.0f;
  mine = GateTable::FromValues("silu/mine@v1", FloatType::kBf16, values);
  EXPECT_NE(mine->digest(), (*FindSiluTable(kSiluIeee, FloatType::kBf16))->digest());
  values.pop_back();
  EXPECT_EQ(GateTable::FromValues("silu/mine@v1", FloatType::kBf16, values).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::kernels
