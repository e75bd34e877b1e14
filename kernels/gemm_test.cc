#include "kernels/gemm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_fma.h"
#include "kernels/float_formats.h"
#include "kernels/gemm_engine.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

constexpr uint32_t kSeed = 20261130;

enum class Values { kNormal, kAnyBits };

struct Case {
  FloatType type;
  GemmProgram program;
  size_t m, n, k;
};

std::vector<uint16_t> RandomHalves(std::mt19937& rng, FloatType type, Values values, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> out(count);
  for (uint16_t& bits : out) {
    if (values == Values::kAnyBits) {
      bits = static_cast<uint16_t>(rng());
    } else {
      bits = type == FloatType::kBf16 ? Bf16::Store(normal(rng)) : F16::Store(normal(rng));
    }
  }
  return out;
}

float Load(FloatType type, uint16_t bits) {
  return type == FloatType::kBf16 ? Bf16::Load(bits) : F16::Load(bits);
}

// The specification, read literally, with the C library's fma.
float ReferenceDot(const Case& c, const uint16_t* a, const uint16_t* b) {
  float total = 0.0f;
  float chain = 0.0f;
  for (size_t k = 0; k < c.k; ++k) {
    if (c.program == GemmProgram::kTile && k % 64 == 0 && k > 0) {
      total = k == 64 ? chain : total + chain;
      chain = 0.0f;
    }
    chain = std::fma(Load(c.type, a[k]), Load(c.type, b[k]), chain);
  }
  if (c.program == GemmProgram::kChain || c.k <= 64) return chain;
  return total + chain;
}

uint32_t CanonicalBits(float x) { return std::isnan(x) ? 0x7FC00000u : BitsOf(x); }

GemmParams ParamsOf(const Case& c, const uint16_t* a, const uint16_t* b, void* out,
                    FloatType out_type, int threads) {
  GemmParams p;
  p.program = c.program;
  p.operand_type = c.type;
  p.out_type = out_type;
  p.m = c.m, p.n = c.n, p.k = c.k;
  p.a = a, p.b = b, p.out = out;
  p.threads = threads;
  return p;
}

void ExpectReferenceBytes(const Case& c, Values values, std::mt19937& rng) {
  const auto a = RandomHalves(rng, c.type, values, c.m * c.k);
  const auto b = RandomHalves(rng, c.type, values, c.n * c.k);
  std::vector<uint32_t> want32(c.m * c.n);
  std::vector<uint16_t> want16(c.m * c.n);
  for (size_t m = 0; m < c.m; ++m) {
    for (size_t n = 0; n < c.n; ++n) {
      const float dot = ReferenceDot(c, &a[m * c.k], &b[n * c.k]);
      want32[m * c.n + n] = CanonicalBits(dot);
      want16[m * c.n + n] = c.type == FloatType::kBf16 ? Bf16::Store(dot) : F16::Store(dot);
    }
  }
  ForEachSimdTarget([&](const char* target) {
    for (const int threads : {1, 3}) {
      const std::string where = std::string(target) + " M=" + std::to_string(c.m) +
                                " N=" + std::to_string(c.n) + " K=" + std::to_string(c.k);
      std::vector<uint32_t> got32(want32.size(), 0xDEADBEEF);
      ASSERT_TRUE(
          Gemm(ParamsOf(c, a.data(), b.data(), got32.data(), FloatType::kF32, threads)).ok());
      EXPECT_EQ(got32, want32) << where;
      std::vector<uint16_t> got16(want16.size(), 0xBEEF);
      ASSERT_TRUE(Gemm(ParamsOf(c, a.data(), b.data(), got16.data(), c.type, threads)).ok());
      EXPECT_EQ(got16, want16) << where;
    }
  });
}

TEST(Gemm, EqualsTheScalarSpecificationOnEveryTargetForRandomShapes) {
  std::mt19937 rng(kSeed);
  for (int i = 0; i < 60; ++i) {
    const Case c{i % 2 == 0 ? FloatType::kBf16 : FloatType::kF16,
                 i % 4 < 2 ? GemmProgram::kChain : GemmProgram::kTile, 1 + rng() % 17,
                 1 + rng() % 150, 1 + rng() % 700};
    ExpectReferenceBytes(c, Values::kNormal, rng);
  }
}

TEST(Gemm, EqualsTheScalarSpecificationForEveryKindOfBits) {
  std::mt19937 rng(kSeed + 1);
  for (int i = 0; i < 40; ++i) {
    // Short chains, or else every one ends in NaN or infinity.
    const Case c{i % 2 == 0 ? FloatType::kBf16 : FloatType::kF16,
                 i % 4 < 2 ? GemmProgram::kChain : GemmProgram::kTile, 1 + rng() % 7,
                 1 + rng() % 70, 1 + rng() % 12};
    ExpectReferenceBytes(c, Values::kAnyBits, rng);
  }
}

TEST(Gemm, HoldsAtTheEdgesOfItsBlocks) {
  std::mt19937 rng(kSeed + 2);
  for (const size_t k : {1, 7, 8, 63, 64, 65, 255, 256, 257, 320}) {
    for (const GemmProgram program : {GemmProgram::kChain, GemmProgram::kTile}) {
      ExpectReferenceBytes({FloatType::kBf16, program, 6, 33, k}, Values::kNormal, rng);
      ExpectReferenceBytes({FloatType::kF16, program, 121, 5, k}, Values::kNormal, rng);
    }
  }
}

TEST(Gemm, ARowDependsOnNoOtherRow) {
  std::mt19937 rng(kSeed + 3);
  const Case c{FloatType::kBf16, GemmProgram::kChain, 130, 40, 100};
  const auto a = RandomHalves(rng, c.type, Values::kNormal, c.m * c.k);
  const auto b = RandomHalves(rng, c.type, Values::kNormal, c.n * c.k);
  std::vector<uint16_t> all(c.m * c.n);
  ASSERT_TRUE(Gemm(ParamsOf(c, a.data(), b.data(), all.data(), c.type, 2)).ok());
  for (size_t m = 0; m < c.m; ++m) {
    Case one = c;
    one.m = 1;
    std::vector<uint16_t> row(c.n);
    ASSERT_TRUE(Gemm(ParamsOf(one, &a[m * c.k], b.data(), row.data(), c.type, 1)).ok());
    EXPECT_EQ(row, std::vector<uint16_t>(&all[m * c.n], &all[m * c.n] + c.n)) << m;
  }
}

TEST(Gemm, StridesLeaveGapsUntouched) {
  std::mt19937 rng(kSeed + 4);
  const Case c{FloatType::kBf16, GemmProgram::kChain, 5, 19, 33};
  const size_t lda = 40, ldb = 37, ldo = 23;
  const auto a = RandomHalves(rng, c.type, Values::kNormal, c.m * lda + 1);
  const auto b = RandomHalves(rng, c.type, Values::kNormal, c.n * ldb + 1);
  std::vector<uint16_t> out(c.m * ldo, 0xBEEF);
  // One element off any vector alignment.
  GemmParams p = ParamsOf(c, a.data() + 1, b.data() + 1, out.data(), c.type, 1);
  p.a_row_stride = lda, p.b_row_stride = ldb, p.out_row_stride = ldo;
  ASSERT_TRUE(Gemm(p).ok());
  for (size_t m = 0; m < c.m; ++m) {
    for (size_t n = 0; n < ldo; ++n) {
      const uint16_t want =
          n < c.n ? Bf16::Store(ReferenceDot(c, &a[1 + m * lda], &b[1 + n * ldb])) : 0xBEEF;
      EXPECT_EQ(out[m * ldo + n], want) << m << "," << n;
    }
  }
}

TEST(Gemm, RefusesWhatItDoesNotDefine) {
  const uint16_t x[4] = {};
  uint16_t out[4];
  const Case c{FloatType::kBf16, GemmProgram::kChain, 1, 1, 4};
  GemmParams p = ParamsOf(c, x, x, out, FloatType::kBf16, 1);
  p.operand_type = FloatType::kF32;
  EXPECT_EQ(Gemm(p).message(), "gemm: expected a and b as BF16 or F16, got F32");
  p = ParamsOf(c, x, x, out, FloatType::kF16, 1);
  EXPECT_FALSE(Gemm(p).ok());
  p = ParamsOf(c, x, x, out, FloatType::kBf16, 1);
  p.m = 0;
  EXPECT_FALSE(Gemm(p).ok());
  p.m = 1, p.b = nullptr;
  EXPECT_FALSE(Gemm(p).ok());
  p.b = x, p.a_row_stride = 3;
  EXPECT_FALSE(Gemm(p).ok());
}

TEST(ChainProduct, TakesTransposedAndFloat32Operands) {
  std::mt19937 rng(kSeed + 5);
  std::normal_distribution<float> normal;
  const size_t m = 9, n = 21, k = 300;
  std::vector<float> a(k * m);  // stored [k, m]
  for (float& x : a) x = normal(rng);
  const auto b = RandomHalves(rng, FloatType::kBf16, Values::kNormal, k * n);  // stored [k, n]
  std::vector<uint32_t> want(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      float sum = 0.0f;
      for (size_t l = 0; l < k; ++l) sum = std::fma(a[l * m + i], Bf16::Load(b[l * n + j]), sum);
      want[i * n + j] = BitsOf(sum);
    }
  }
  ForEachSimdTarget([&](const char* target) {
    std::vector<uint32_t> got(m * n);
    ChainProduct p;
    p.a = {a.data(), FloatType::kF32, 1, m};
    p.b = {b.data(), FloatType::kBf16, 1, n};
    p.m = m, p.n = n, p.k = k;
    p.out = got.data(), p.out_type = FloatType::kF32, p.out_row_stride = n;
    RunChainProduct(p);
    EXPECT_EQ(got, want) << target;
  });
}

TEST(ChainProduct, AChainInTwoCallsIsTheWholeChain) {
  std::mt19937 rng(kSeed + 7);
  const size_t m = 7, n = 43, k = 400, cut = 129;
  const auto a = RandomHalves(rng, FloatType::kF16, Values::kNormal, m * k);
  const auto b = RandomHalves(rng, FloatType::kF16, Values::kNormal, k * n);  // stored [k, n]
  ForEachSimdTarget([&](const char* target) {
    std::vector<float> whole(m * n), parts(m * n);
    ChainProduct p;
    p.a = {a.data(), FloatType::kF16, k, 1};
    p.b = {b.data(), FloatType::kF16, 1, n};
    p.m = m, p.n = n, p.k = k;
    p.out = whole.data(), p.out_row_stride = n;
    RunChainProduct(p);
    p.out = parts.data(), p.k = cut;
    RunChainProduct(p);
    p.a.data = a.data() + cut, p.b.data = b.data() + cut * n;
    p.k = k - cut, p.continues = true;
    RunChainProduct(p);
    EXPECT_EQ(parts, whole) << target;
    EXPECT_NE(parts[0], 0.0f);
  });
}

TEST(ExactFma, EqualsTheCLibraryOnRandomAndCraftedBits) {
  std::mt19937 rng(kSeed + 6);
  const auto expect = [](uint32_t a, uint32_t b, uint32_t c) {
    const float want = std::fma(F32FromBits(a), F32FromBits(b), F32FromBits(c));
    const float got = ExactFma(F32FromBits(a), F32FromBits(b), F32FromBits(c));
    EXPECT_EQ(CanonicalBits(got), CanonicalBits(want))
        << std::hex << a << " " << b << " " << c << " seed " << std::dec << kSeed;
  };
  for (int i = 0; i < 2000000; ++i) {
    const uint32_t a = rng(), b = rng();
    // An addend near the product, so that its bits decide the rounding.
    const int shift = static_cast<int>(rng() % 56) - 28;
    const float near = std::ldexp(F32FromBits(a) * F32FromBits(b), shift);
    expect(a, b, i % 2 == 0 ? rng() : BitsOf(near) ^ (rng() & 0x800000FF));
  }
  // Products on and beside midpoints, overflow held back by the addend, denormal results.
  const uint32_t edges[] = {0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800001,
                            0xBF7FFFFF, 0x33800000, 0x33800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x5F800000,
                            0x20000000, 0x1FFFFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001};
  for (const uint32_t a : edges) {
    for (const uint32_t b : edges) {
      for (const uint32_t c : edges) expect(a, b, c);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels
