#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/moe_cuda.h"
#include "tests/gpu/twins.h"

namespace lockstep::kernels {
namespace {

constexpr FloatType kBf16 = FloatType::kBf16;

struct Shape {
  int64_t rows, columns;
  int64_t gap, offset;  // elements after each row, and before the first
};

const Shape kShapes[] = {
    {1, 1, 0, 0}, {3, 8, 0, 0}, {5, 9, 1, 1}, {7, 4096, 0, 0}, {33, 1031, 3, 5}, {64, 2056, 8, 8},
};

const char* Id(MoeLeafProgram program) {
  return program == MoeLeafProgram::kBf16Add ? kMoeLeafBf16AddId : kMoeLeafFp32FmaId;
}

const char* Id(MoeFoldProgram program) {
  switch (program) {
    case MoeFoldProgram::kBf16Tree:
      return kMoeFoldBf16TreeId;
    case MoeFoldProgram::kFp32Tree:
      return kMoeFoldFp32TreeId;
    case MoeFoldProgram::kFp64Tree:
      return kMoeFoldFp64TreeId;
  }
  return "";
}

void CompareLeaf(TwinCheck& check, MoeLeafProgram program, const Shape& s, Mix mix) {
  const int64_t stride = s.columns + s.gap;
  const size_t size = static_cast<size_t>(s.rows * stride + s.offset);
  const std::vector<uint16_t> routed = check.Halves(size, kBf16, mix);
  const std::vector<uint16_t> shared = check.Halves(size, kBf16, mix);
  std::vector<uint16_t> want = Poisoned<uint16_t>(size);
  const DeviceArray<uint16_t> routed_d = check.Upload(routed), shared_d = check.Upload(shared);
  const DeviceArray<uint16_t> got = check.UploadPoison<uint16_t>(size);
  MoeLeafParams p;
  p.program = program, p.rows = s.rows, p.columns = s.columns, p.scale = 2.5f;
  p.routed_row_stride = p.shared_row_stride = p.out_row_stride = stride;
  p.routed = routed.data() + s.offset, p.shared = shared.data() + s.offset;
  p.out = want.data() + s.offset;
  const std::string label =
      absl::StrCat("[", s.rows, ", ", s.columns, "] gap ", s.gap, " offset ", s.offset);
  check.Ran(Id(program), label, MoeLeaf(p));
  p.routed = routed_d.get() + s.offset, p.shared = shared_d.get() + s.offset;
  p.out = got.get() + s.offset;
  check.Ran(Id(program), label, MoeLeafCuda(p, check.stream()));
  check.Equal(Id(program), label, want, got);
}

void CompareFold(TwinCheck& check, MoeFoldProgram program, int64_t contributors, const Shape& s,
                 Mix mix) {
  const int64_t stride = s.columns + s.gap;
  const int64_t contributor_stride = s.rows * stride + s.gap;
  const size_t in_size = static_cast<size_t>(contributors * contributor_stride + s.offset);
  const size_t out_size = static_cast<size_t>(s.rows * stride + s.offset);
  std::vector<uint16_t> partials = check.Halves(in_size, kBf16, mix);
  // The specification's leaves that tell the folds apart, where they fit.
  constexpr uint16_t kApart[2][4] = {{0x3F80, 0x3B00, 0x3B00, 0x3A80},
                                     {0x3F80, 0x3300, 0x3B80, 0x0000}};
  for (int64_t e = 0; e < contributors && e < 4; ++e) {
    for (int64_t column = 0; column < s.columns && column < 2; ++column) {
      partials[static_cast<size_t>(e * contributor_stride + s.offset + column)] = kApart[column][e];
    }
  }
  std::vector<uint16_t> want = Poisoned<uint16_t>(out_size);
  const DeviceArray<uint16_t> partials_d = check.Upload(partials);
  const DeviceArray<uint16_t> got = check.UploadPoison<uint16_t>(out_size);
  MoeFoldParams p;
  p.program = program, p.contributors = contributors, p.rows = s.rows, p.columns = s.columns;
  p.contributor_stride = contributor_stride;
  p.partials_row_stride = p.out_row_stride = stride;
  p.partials = partials.data() + s.offset, p.out = want.data() + s.offset;
  const std::string label = absl::StrCat("E ", contributors, " [", s.rows, ", ", s.columns,
                                         "] gap ", s.gap, " offset ", s.offset);
  check.Ran(Id(program), label, MoeFold(p));
  p.partials = partials_d.get() + s.offset, p.out = got.get() + s.offset;
  check.Ran(Id(program), label, MoeFoldCuda(p, check.stream()));
  check.Equal(Id(program), label, want, got);
}

Shape RandomShape(TwinCheck& check) {
  return {check.Between(1, 40), check.Between(1, 1000), check.Between(0, 17), check.Between(0, 9)};
}

}  // namespace

void CheckMoeTwins(TwinCheck& check) {
  for (const MoeLeafProgram program : {MoeLeafProgram::kBf16Add, MoeLeafProgram::kFp32Fma}) {
    if (!check.Wants(Id(program))) continue;
    for (const Shape& shape : kShapes) {
      CompareLeaf(check, program, shape, Mix::kNormal);
      CompareLeaf(check, program, shape, Mix::kAdversarial);
    }
    CompareLeaf(check, program, {512, 7168, 0, 0}, Mix::kAdversarial);
    for (int i = 0; i < kRandomShapes; ++i) {
      CompareLeaf(check, program, RandomShape(check), Mix::kAdversarial);
    }
  }
  for (const MoeFoldProgram program :
       {MoeFoldProgram::kBf16Tree, MoeFoldProgram::kFp32Tree, MoeFoldProgram::kFp64Tree}) {
    if (!check.Wants(Id(program))) continue;
    for (const int64_t contributors : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 33, 64}) {
      CompareFold(check, program, contributors, {3, 72, 0, 0}, Mix::kNormal);
      CompareFold(check, program, contributors, {5, 67, 3, 1}, Mix::kAdversarial);
    }
    for (const int64_t contributors : {65, 128, 257, 1000}) {
      CompareFold(check, program, contributors, {2, 24, 0, 0}, Mix::kAdversarial);
    }
    for (const Shape& shape : kShapes) CompareFold(check, program, 16, shape, Mix::kNormal);
    CompareFold(check, program, 16, {64, 6144, 0, 0}, Mix::kNormal);
    for (int i = 0; i < kRandomShapes; ++i) {
      CompareFold(check, program, check.Between(1, 40), RandomShape(check), Mix::kAdversarial);
    }
  }
}

}  // namespace lockstep::kernels
