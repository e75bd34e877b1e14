#include "kernels/realisation_file.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float_formats.h"
#include "kernels/silu_ieee.h"

namespace lockstep::kernels {
namespace {

// A "production kernel": ieee but for one gate, whose value its context gives.
extern "C" int OneGateOff(const uint16_t* gates, size_t count, float* out, void* context) {
  for (size_t i = 0; i < count; ++i) out[i] = SiluIeee(Bf16::Load(gates[i]));
  out[0x3F80] = *static_cast<const float*>(context);
  return 0;
}

extern "C" int Unstable(const uint16_t*, size_t count, float* out, void* context) {
  auto* calls = static_cast<int*>(context);
  for (size_t i = 0; i < count; ++i) out[i] = 0.0f;
  out[7] = static_cast<float>((*calls)++);
  return 0;
}

extern "C" int Failing(const uint16_t*, size_t, float*, void*) { return 3; }

GateTable Recorded(float value) {
  absl::StatusOr<GateTable> table = RecordSiluTable(FloatType::kBf16, OneGateOff, &value);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

TEST(RealisationFile, ARecordedTableIsFoundByItsDigestAfterLoading) {
  const GateTable table = Recorded(0.5f);
  EXPECT_EQ(table.id(), UserSiluId(table.digest()));
  EXPECT_EQ(table.id().size(), std::string("silu/user_0123456789abcdef@v1").size());
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "one_gate_off.silu").string();
  ASSERT_TRUE(WriteRealisationFile(table, path).ok());
  EXPECT_EQ(FindSiluTable(table.id(), FloatType::kBf16).status().code(),
            absl::StatusCode::kNotFound);
  for (int again = 0; again < 2; ++again) {
    const absl::StatusOr<std::string> id = LoadRealisationFile(path);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(*id, table.id());
  }
  const absl::StatusOr<const GateTable*> found = FindSiluTable(table.id(), FloatType::kBf16);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->digest(), table.digest());
  EXPECT_EQ((*found)->values()[0x3F80], 0.5f);
  EXPECT_EQ(LoadRealisationFile(path + ".absent").status().code(), absl::StatusCode::kNotFound);
}

TEST(RealisationFile, AnIdIsNeverKeptForTwoTables) {
  const auto named = [](std::string id, float fill) {
    return *GateTable::FromValues(std::move(id), FloatType::kBf16,
                                  std::vector<float>(kGateTableEntries, fill));
  };
  EXPECT_EQ(KeepSiluTable(named(kSiluTorchCuda, 0)).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(KeepSiluTable(named("silu/mine@v1", 0)).ok());
  EXPECT_EQ(KeepSiluTable(named("silu/mine@v1", 1)).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(RealisationFile, OneBitOfTheTableChangesTheId) {
  EXPECT_NE(Recorded(0.5f).id(), Recorded(F32FromBits(BitsOf(0.5f) + 1)).id());
}

TEST(RealisationFile, ADamagedFileIsRefusedWhereverTheDamageLies) {
  const std::string good = EncodeRealisation(Recorded(0.5f));
  ASSERT_TRUE(DecodeRealisation(good).ok());
  for (const size_t at : {size_t{0}, size_t{8}, size_t{13}, size_t{20}, size_t{46}, size_t{60},
                          good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_EQ(DecodeRealisation(bad).status().code(), absl::StatusCode::kDataLoss) << at;
  }
  for (const size_t size : {size_t{0}, size_t{11}, size_t{40}, good.size() - 1}) {
    EXPECT_EQ(DecodeRealisation(good.substr(0, size)).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(DecodeRealisation(good + "x").status().code(), absl::StatusCode::kDataLoss);
}

TEST(RealisationFile, AFunctionThatFailsOrIsNotDeterministicIsRefused) {
  int calls = 0;
  EXPECT_EQ(RecordSiluTable(FloatType::kBf16, Unstable, &calls).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(RecordSiluTable(FloatType::kBf16, Failing, nullptr).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(RecordSiluTable(FloatType::kBf16, nullptr, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::kernels
