#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gemm_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  int64_t m, n, k;
  int64_t gap, offset;  // elements after each row, and before the first
};

// The skinny, tiled and strided ways; tails of every kind in each.
const Shape kShapes[] = {
    {1, 1, 1, 0, 0},        {1, 5, 7, 0, 0},       {1, 33, 8, 0, 0},      {1, 100, 129, 7, 0},
    {2, 64, 128, 0, 0},     {3, 65, 1000, 0, 0},   {4, 257, 264, 8, 8},   {5, 96, 200, 0, 0},
    {8, 300, 2055, 1, 0},   {9, 128, 520, 0, 0},   {17, 70, 1032, 0, 0},  {64, 64, 64, 0, 0},
    {70, 16, 512, 0, 0},    {200, 3, 1025, 7, 0},  {65, 65, 72, 0, 0},    {128, 128, 128, 0, 0},
    {129, 131, 1040, 8, 8}, {130, 300, 8, 0, 0},   {257, 140, 344, 0, 0}, {100, 90, 65, 0, 0},
    {66, 67, 63, 2, 3},     {80, 200, 1001, 0, 1}, {1, 2048, 4096, 0, 0}, {8, 1024, 4096, 0, 0},
    {512, 256, 1536, 0, 0},
};

const char* Id(GemmProgram program) {
  return program == GemmProgram::kChain ? kGemmChainId : kGemmTileId;
}

template <class Out>
void CompareProduct(TwinCheck& check, GemmProgram program, FloatType type, FloatType out_type,
                    const Shape& s, Mix mix) {
  const int64_t stride = s.k + s.gap;
  const std::vector<uint16_t> a =
      check.Halves(static_cast<size_t>(s.m * stride + s.offset), type, mix);
  const std::vector<uint16_t> b =
      check.Halves(static_cast<size_t>(s.n * stride + s.offset), type, mix);
  const int64_t out_stride = s.n + s.gap;
  const size_t out_size = static_cast<size_t>(s.m * out_stride);
  std::vector<Out> want = Poisoned<Out>(out_size);
  const DeviceArray<uint16_t> a_d = check.Upload(a), b_d = check.Upload(b);
  const DeviceArray<Out> got = check.UploadPoison<Out>(out_size);
  GemmParams p;
  p.program = program, p.operand_type = type, p.out_type = out_type;
  p.m = s.m, p.n = s.n, p.k = s.k, p.threads = 2;
  p.a_row_stride = p.b_row_stride = stride, p.out_row_stride = out_stride;
  p.a = a.data() + s.offset, p.b = b.data() + s.offset, p.out = want.data();
  const std::string label =
      absl::StrCat(Name(type), " to ", Name(out_type), " M ", s.m, " N ", s.n, " K ", s.k, " gap ",
                   s.gap, " offset ", s.offset, " mix ", static_cast<int>(mix));
  check.Ran(Id(program), label, Gemm(p));
  p.a = a_d.get() + s.offset, p.b = b_d.get() + s.offset, p.out = got.get();
  check.Ran(Id(program), label, GemmCuda(p, check.stream()));
  check.Equal(Id(program), label, want, got);
}

}  // namespace

void CheckGemmTwins(TwinCheck& check) {
  for (const GemmProgram program : {GemmProgram::kChain, GemmProgram::kTile}) {
    if (!check.Wants(Id(program))) continue;
    for (const FloatType type : {FloatType::kBf16, FloatType::kF16}) {
      for (const Shape& shape : kShapes) {
        for (const Mix mix : {Mix::kNormal, Mix::kAdversarial}) {
          CompareProduct<uint16_t>(check, program, type, type, shape, mix);
          CompareProduct<float>(check, program, type, FloatType::kF32, shape, mix);
        }
      }
      for (int i = 0; i < kRandomShapes; ++i) {
        const Shape shape = {check.Between(1, 200), check.Between(1, 300), check.Between(1, 700),
                             check.Between(0, 3) * 8 + (i % 4 == 3 ? 1 : 0), i % 4 == 2 ? 3 : 0};
        CompareProduct<uint16_t>(check, program, type, type, shape, Mix::kAdversarial);
      }
      // Sums of tiny products: denormal results, and chains that reach -0.
      CompareProduct<float>(check, program, type, FloatType::kF32, {40, 40, 300, 0, 0}, Mix::kTiny);
      CompareProduct<float>(check, program, type, FloatType::kF32, {140, 140, 300, 0, 0},
                            Mix::kTiny);
    }
  }
}

}  // namespace lockstep::kernels
