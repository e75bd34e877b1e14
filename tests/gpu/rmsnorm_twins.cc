#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/rmsnorm_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

struct Case {
  int64_t rows, columns;
  int64_t gap = 0;     // elements after each row
  int64_t offset = 0;  // before the first
  bool residual = false;
  bool keep_residual = false;
  int weight = 0;  // 0: none, 1: BF16, 2: F32
  bool zero_centered = false;
};

void CompareNorm(TwinCheck& check, const Case& c, Mix mix) {
  const int64_t stride = c.columns + c.gap;
  const size_t size = static_cast<size_t>(c.rows * stride + c.offset);
  const std::vector<uint16_t> x = check.Halves(size, FloatType::kBf16, mix);
  const std::vector<uint16_t> residual = check.Halves(size, FloatType::kBf16, mix);
  const size_t columns = static_cast<size_t>(c.columns);
  const std::vector<uint16_t> half_weight = check.Halves(columns, FloatType::kBf16, mix);
  const std::vector<float> single_weight = check.Floats(columns, mix);
  std::vector<uint16_t> want = Poisoned<uint16_t>(size), want_residual = want;
  const DeviceArray<uint16_t> x_d = check.Upload(x), residual_d = check.Upload(residual);
  const DeviceArray<uint16_t> half_d = check.Upload(half_weight);
  const DeviceArray<float> single_d = check.Upload(single_weight);
  const DeviceArray<uint16_t> got = check.UploadPoison<uint16_t>(size);
  const DeviceArray<uint16_t> got_residual = check.UploadPoison<uint16_t>(size);
  RmsNormParams p;
  p.rows = c.rows, p.columns = c.columns, p.row_stride = stride;
  p.zero_centered = c.zero_centered;
  p.weight_type = c.weight == 2 ? FloatType::kF32 : FloatType::kBf16;
  const auto point = [&](const uint16_t* in, const uint16_t* add, const void* half,
                         const void* single, uint16_t* out, uint16_t* kept) {
    p.x = in + c.offset, p.out = out + c.offset;
    p.residual = c.residual ? add + c.offset : nullptr;
    p.residual_out = c.keep_residual ? kept + c.offset : nullptr;
    p.weight = c.weight == 0 ? nullptr : c.weight == 1 ? half : single;
  };
  const std::string label = absl::StrCat(
      "[", c.rows, ", ", c.columns, "] gap ", c.gap, " offset ", c.offset, " residual ", c.residual,
      c.keep_residual, " weight ", c.weight, c.zero_centered, " mix ", static_cast<int>(mix));
  point(x.data(), residual.data(), half_weight.data(), single_weight.data(), want.data(),
        want_residual.data());
  check.Ran(kRmsNormId, label, RmsNorm(p));
  point(x_d.get(), residual_d.get(), half_d.get(), single_d.get(), got.get(), got_residual.get());
  check.Ran(kRmsNormId, label, RmsNormCuda(p, check.stream()));
  check.Equal(kRmsNormId, label, want, got);
  check.Equal(kRmsNormId, label + " residual", want_residual, got_residual);
}

}  // namespace

void CheckRmsNormTwins(TwinCheck& check) {
  if (!check.Wants(kRmsNormId)) return;
  for (const int64_t columns :
       {1,    2,    3,    7,    8,    9,    31,   64,   128,  255,  256,  257,   300,   512,
        1000, 1024, 2048, 2050, 4096, 5120, 6144, 7168, 8191, 8192, 8200, 16384, 20000, 32768}) {
    for (const Mix mix : {Mix::kNormal, Mix::kAdversarial}) {
      CompareNorm(check, {.rows = 5, .columns = columns}, mix);
      CompareNorm(check,
                  {.rows = 3,
                   .columns = columns,
                   .residual = true,
                   .keep_residual = true,
                   .weight = 1,
                   .zero_centered = true},
                  mix);
      CompareNorm(
          check,
          {.rows = 4, .columns = columns, .gap = 3, .offset = 1, .residual = true, .weight = 2},
          mix);
      CompareNorm(check, {.rows = 17, .columns = columns, .gap = 8, .offset = 8, .weight = 1}, mix);
    }
  }
  for (const int64_t columns : {32769, 100000, 1 << 20}) {
    CompareNorm(check,
                {.rows = 2,
                 .columns = columns,
                 .residual = true,
                 .keep_residual = true,
                 .weight = 2,
                 .zero_centered = true},
                Mix::kNormal);
  }
  for (int i = 0; i < 4 * kRandomShapes; ++i) {
    const bool residual = check.Between(0, 1) == 1;
    const int weight = static_cast<int>(check.Between(0, 2));
    CompareNorm(check,
                {.rows = check.Between(1, 50),
                 .columns = check.Between(1, 9000),
                 .gap = check.Between(0, 17),
                 .offset = check.Between(0, 9),
                 .residual = residual,
                 .keep_residual = residual && i % 2 == 0,
                 .weight = weight,
                 .zero_centered = weight > 0 && i % 3 == 0},
                Mix::kAdversarial);
  }
  CompareNorm(check, {.rows = 600, .columns = 4096, .weight = 1}, Mix::kNormal);
}

}  // namespace lockstep::kernels
