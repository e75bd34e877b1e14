#include "kernels/swiglu.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/simd_targets_for_test.h"

namespace lockstep::kernels {
namespace {

using Halves = std::vector<uint16_t>;

constexpr SwigluProgram kPrograms[] = {SwigluProgram::kOneRoundFp32, SwigluProgram::kTwoRound,
                                       SwigluProgram::kOneRoundFp32Clamped};
constexpr float kLimit = 7.03f;  // no bf16 or fp16 holds it

// The specification, read plainly, on one element. `silu` gives the realisation's value.
template <class Format, class Silu>
uint16_t Reference(SwigluProgram program, uint16_t gate, uint16_t up, const Silu& silu) {
  const float u = Format::Load(up);
  switch (program) {
    case SwigluProgram::kOneRoundFp32:
      return Format::Store(silu(Format::Load(gate), gate) * u);
    case SwigluProgram::kTwoRound:
      return Format::Store(Format::Load(Format::Store(silu(Format::Load(gate), gate))) * u);
    case SwigluProgram::kOneRoundFp32Clamped: {
      float g = Format::Load(gate);
      if (!std::isnan(g)) g = std::fmin(g, kLimit);
      float v = u;
      if (!std::isnan(v)) v = std::fmax(-kLimit, std::fmin(v, kLimit));
      return Format::Store(g / (1.0f + ExpF32(-g)) * v);
    }
  }
  return 0;
}

float LimitOf(SwigluProgram program) {
  return program == SwigluProgram::kOneRoundFp32Clamped ? kLimit : 0;
}

// Ups with every kind of value: units, rounding-sensitive, denormal, huge, infinite, NaN.
Halves Ups(FloatType type) {
  if (type == FloatType::kBf16) {
    return {0x3F80, 0xBF81, 0x3FFF, 0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x40E1, 0xC0E2,
            0x4049, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7F81, 0x3EAB, 0x2B00};
  }
  return {0x3C00, 0xBC01, 0x3FFF, 0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x4708, 0xC709,
          0x4248, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7C01, 0x3555, 0x1400};
}

template <class Format>
void CheckEveryGate(const GateTable* table, SwigluProgram program, const std::string& label) {
  const Halves ups = Ups(Format::kType);
  const auto silu = [&](float g, uint16_t bits) {
    return table != nullptr ? table->values()[bits] : g / (1.0f + ExpF32(-g));
  };
  Halves gate(65536), up(65536), out(65536);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<uint16_t>(i);
  for (const uint16_t u : ups) {
    std::fill(up.begin(), up.end(), u);
    SwigluParams p;
    p.program = program;
    p.type = Format::kType;
    p.rows = 1;
    p.columns = 65536;
    p.gate = gate.data();
    p.up = up.data();
    p.out = out.data();
    p.silu = table;
    p.limit = LimitOf(program);
    ASSERT_TRUE(Swiglu(p).ok());
    for (size_t i = 0; i < gate.size(); ++i) {
      ASSERT_EQ(out[i], Reference<Format>(program, gate[i], u, silu))
          << label << std::hex << " gate 0x" << i << " up 0x" << u;
    }
  }
}

TEST(SwigluTest, EveryGateOfEveryRealisationProgramAndTargetEqualsThePlainReading) {
  ForEachSimdTarget([&](const char* target) {
    for (const SwigluProgram program : kPrograms) {
      for (const SiluRealisation& known : KnownSiluRealisations()) {
        const GateTable* table = *FindSiluTable(known.id, known.gate);
        if (program == SwigluProgram::kOneRoundFp32Clamped && known.id != kSiluIeee) continue;
        const std::string label = std::string(target) + " " + std::string(known.id);
        if (known.gate == FloatType::kBf16) CheckEveryGate<Bf16>(table, program, label);
        if (known.gate == FloatType::kF16) CheckEveryGate<F16>(table, program, label);
      }
      CheckEveryGate<Bf16>(nullptr, program, std::string(target) + " computed");
      CheckEveryGate<F16>(nullptr, program, std::string(target) + " computed");
    }
  });
}

template <class Format>
void CheckVjpOfEveryGate(const GateTable* table, const std::string& label) {
  const Halves others = Ups(Format::kType);
  Halves gate(65536), up(65536), dout(65536), dgate(65536), dup(65536);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<uint16_t>(i);
  for (size_t k = 0; k < others.size(); ++k) {
    for (size_t i = 0; i < gate.size(); ++i) {
      up[i] = others[k];
      dout[i] = others[(k + 1 + i) % others.size()];
    }
    SwigluVjpParams p;
    p.type = Format::kType;
    p.rows = 1;
    p.columns = 65536;
    p.gate = gate.data();
    p.up = up.data();
    p.dout = dout.data();
    p.dgate = dgate.data();
    p.dup = dup.data();
    p.sigmoid = table;
    ASSERT_TRUE(SwigluVjp(p).ok());
    for (size_t i = 0; i < gate.size(); ++i) {
      const float g = Format::Load(gate[i]), u = Format::Load(up[i]), d = Format::Load(dout[i]);
      const float s = 1.0f / (1.0f + ExpF32(-g));
      ASSERT_EQ(dgate[i], Format::Store((d * u) * (s + ((g * s) * (1.0f - s)))))
          << label << std::hex << " gate 0x" << i << " up 0x" << up[i] << " dout 0x" << dout[i];
      ASSERT_EQ(dup[i], Format::Store(d * (g * s)))
          << label << std::hex << " gate 0x" << i << " dout 0x" << dout[i];
    }
  }
}

TEST(SwigluTest, VjpOfEveryGateEqualsThePlainReadingOnEveryTarget) {
  ForEachSimdTarget([&](const char* target) {
    CheckVjpOfEveryGate<Bf16>(*FindSigmoidTable(FloatType::kBf16), target);
    CheckVjpOfEveryGate<F16>(*FindSigmoidTable(FloatType::kF16), target);
    CheckVjpOfEveryGate<Bf16>(nullptr, target);
    CheckVjpOfEveryGate<F16>(nullptr, target);
  });
}

Halves RandomBits(size_t n, std::mt19937* random) {
  Halves values(n);
  for (uint16_t& value : values) value = static_cast<uint16_t>((*random)());
  return values;
}

TEST(SwigluTest, BytesDoNotDependOnShapeStrideAlignmentPackingThreadsOrTarget) {
  constexpr uint32_t kSeed = 20251;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    const int64_t rows = 1 + random() % 5;
    const int64_t columns = round % 10 == 0 ? 4096 + random() % 4200 : 1 + random() % 70;
    const Halves packed = RandomBits(rows * 2 * columns, &random);
    const size_t offset = random() % 9;  // elements past an allocation's start
    const int64_t gate_stride = columns + random() % 7, up_stride = columns + random() % 7;
    const int64_t out_stride = columns + 1 + random() % 7;
    Halves gate(offset + rows * gate_stride), up(offset + rows * up_stride);
    for (int64_t r = 0; r < rows; ++r) {
      memcpy(&gate[offset + r * gate_stride], &packed[r * 2 * columns], columns * 2);
      memcpy(&up[offset + r * up_stride], &packed[(r * 2 + 1) * columns], columns * 2);
    }
    SwigluParams p;
    p.program = kPrograms[round % 3];
    p.type = round % 2 == 0 ? FloatType::kBf16 : FloatType::kF16;
    p.limit = LimitOf(p.program);
    p.rows = rows;
    p.columns = columns;
    p.SetPackedGateUp(packed.data());
    Halves want(rows * columns);
    p.out = want.data();
    ASSERT_TRUE(Swiglu(p).ok());

    p.gate = gate.data() + offset;
    p.up = up.data() + offset;
    p.gate_row_stride = gate_stride;
    p.up_row_stride = up_stride;
    p.out_row_stride = out_stride;
    p.silu = *FindSiluTable(kSiluIeee, p.type);
    ForEachSimdTarget([&](const char* target) {
      for (const int threads : {1, 3}) {
        constexpr uint16_t kUntouched = 0x5A5A;
        Halves out(offset + rows * out_stride, kUntouched);
        p.out = out.data() + offset;
        p.threads = threads;
        ASSERT_TRUE(Swiglu(p).ok());
        for (int64_t r = 0; r < rows; ++r) {
          const uint16_t* row = &out[offset + r * out_stride];
          ASSERT_EQ(memcmp(row, &want[r * columns], columns * 2), 0)
              << target << " threads " << threads << " seed " << kSeed << " round " << round;
          for (int64_t c = columns; c < out_stride; ++c) ASSERT_EQ(row[c], kUntouched);
        }
      }
    });
  }
}

TEST(SwigluTest, OneAndTwoRoundsDifferInAboutTwentySevenPercentOfNormalOperands) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  constexpr int64_t kRows = 64, kColumns = 12288;
  for (const float deviation : {1.0f, 1.5f}) {
    Halves packed(kRows * 2 * kColumns), one(kRows * kColumns), two(kRows * kColumns);
    for (uint16_t& value : packed) value = Bf16::Store(deviation * normal(random));
    SwigluParams p;
    p.rows = kRows;
    p.columns = kColumns;
    p.SetPackedGateUp(packed.data());
    p.silu = *FindSiluTable(kSiluIeee, FloatType::kBf16);
    p.out = one.data();
    ASSERT_TRUE(Swiglu(p).ok());
    p.program = SwigluProgram::kTwoRound;
    p.out = two.data();
    ASSERT_TRUE(Swiglu(p).ok());
    int differing = 0;
    for (size_t i = 0; i < one.size(); ++i) differing += one[i] != two[i];
    EXPECT_NEAR(differing / static_cast<double>(one.size()), 0.2745, 0.002) << deviation;
  }
}

SwigluParams ValidParams(Halves* buffer) {
  buffer->assign(64, 0x3F80);
  SwigluParams p;
  p.rows = 2;
  p.columns = 8;
  p.SetPackedGateUp(buffer->data());
  p.out = buffer->data() + 40;
  return p;
}

void ExpectRefused(const SwigluParams& p, const std::string& fragment) {
  const absl::Status status = Swiglu(p);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fragment;
  EXPECT_TRUE(absl::StrContains(status.message(), fragment)) << status;
}

TEST(SwigluTest, WhatDoesNotFitIsRefusedByName) {
  Halves buffer;
  const SwigluParams valid = ValidParams(&buffer);
  ASSERT_TRUE(Swiglu(valid).ok());
  SwigluParams p = valid;
  p.rows = 0;
  ExpectRefused(p, "empty batch");
  p = valid;
  p.columns = 0;
  ExpectRefused(p, "at least 1");
  p = valid;
  p.type = FloatType::kF32;
  ExpectRefused(p, "BF16 or F16, got F32");
  p = valid;
  p.up = nullptr;
  ExpectRefused(p, "'up'");
  p = valid;
  p.out_row_stride = 7;
  ExpectRefused(p, "'out'");
  p = valid;
  p.silu = *FindSiluTable(kSiluIeee, FloatType::kF16);
  ExpectRefused(p, "F16 gates");
  p = valid;
  p.limit = 3;
  ExpectRefused(p, "only swiglu/one_round_fp32_clamped@v1 takes a limit");
  for (const float limit : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), NAN}) {
    p = valid;
    p.program = SwigluProgram::kOneRoundFp32Clamped;
    p.limit = limit;
    ExpectRefused(p, "finite limit above 0");
  }
  p = valid;
  p.program = SwigluProgram::kOneRoundFp32Clamped;
  p.limit = 1;
  p.silu = *FindSiluTable(kSiluTorchCuda, FloatType::kBf16);
  ExpectRefused(p, "silu/ieee@v1 only");
}

}  // namespace
}  // namespace lockstep::kernels
