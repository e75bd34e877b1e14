#include "kernels/layer_weights.h"

#include "absl/strings/str_cat.h"
#include "kernels/gemm.h"

namespace lockstep::kernels {

int64_t LayerRun::rows() const {
  int64_t rows = 0;
  for (const int64_t tokens : document_tokens) rows += tokens;
  return rows;
}

void LayerRun::Observe(absl::string_view component, FloatType type, int64_t rows, int64_t columns,
                       const void* data) const {
  if (observe) observe(component, {type, rows, columns, data});
}

absl::Status CheckLayerRun(const LayerRun& run) {
  if (run.document_tokens.empty()) {
    return absl::InvalidArgumentError(
        "layer: expected at least one document; an empty batch is refused at an exact site");
  }
  for (const int64_t tokens : run.document_tokens) {
    if (tokens < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer: expected documents of at least 1 token, got ", tokens));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLayerWeight(absl::string_view op, absl::string_view role,
                              const LayerWeight& weight, int64_t elements, bool f32_too) {
  const bool type_fits =
      weight.type == FloatType::kBf16 || (f32_too && weight.type == FloatType::kF32);
  if (weight.data != nullptr && type_fits && weight.elements == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": expected '", role, "' as BF16", f32_too ? " or F32" : "", " with ",
                   elements, " elements, got ", weight.data == nullptr ? "none" : Name(weight.type),
                   " with ", weight.elements, "; use the weights of this config"));
}

absl::Status Project(const Projection& projection) {
  GemmParams p;
  p.program = GemmProgram::kChain;
  p.operand_type = FloatType::kBf16;
  p.out_type = projection.out_type;
  p.m = projection.rows, p.n = projection.n, p.k = projection.k;
  p.a = projection.x, p.b = projection.weight, p.out = projection.out;
  p.b_row_stride = projection.weight_row_stride;
  p.threads = projection.threads;
  return Gemm(p);
}

}  // namespace lockstep::kernels
