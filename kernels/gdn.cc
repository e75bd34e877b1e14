#include "kernels/gdn.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/fp_environment.h"
#include "kernels/parallel.h"

namespace lockstep::kernels {
namespace {

bool IsInputType(FloatType type) { return type == FloatType::kF32 || type == FloatType::kBf16; }

absl::Status CheckTypes(const GdnParams& p) {
  if (!IsInputType(p.input_type) || !IsInputType(p.gate_type) || !IsInputType(p.out_type)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gdn: expected q, k, v, g, beta and o as F32 or BF16, got ", Name(p.input_type), ", ",
        Name(p.gate_type), " (g, beta) and ", Name(p.out_type), " (o)"));
  }
  if (p.state_type != FloatType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: expected a state of F32, got ", Name(p.state_type),
                     "; the recurrence is not exact in a narrower state"));
  }
  return absl::OkStatus();
}

const void* Advanced(const void* base, FloatType type, int64_t elements) {
  return static_cast<const uint8_t*>(base) + static_cast<int64_t>(SizeOf(type)) * elements;
}

}  // namespace

absl::Status CheckGdnShape(const GdnParams& p) {
  if (absl::Status status = CheckTypes(p); !status.ok()) return status;
  if (p.batch != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: expected a batch of 1, got ", p.batch, "; call once for each document"));
  }
  const auto in = [](int64_t x, int64_t limit) { return x >= 1 && x <= limit; };
  if (!in(p.key_heads, kGdnMaxHeads) || !in(p.value_heads, kGdnMaxHeads) ||
      !in(p.key_dim, kGdnMaxHeadDim) || !in(p.value_dim, kGdnMaxHeadDim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: expected q, k [T,Hk,K] and v [T,Hv,V] with 1 to ", kGdnMaxHeads,
                     " heads and K, V of 1 to ", kGdnMaxHeadDim, ", got Hk=", p.key_heads,
                     " Hv=", p.value_heads, " K=", p.key_dim, " V=", p.value_dim));
  }
  if (p.state == nullptr) return absl::InvalidArgumentError("gdn: expected a non-null state");
  if (p.document_offset < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: expected an offset of at least 0, got ", p.document_offset));
  }
  return CheckFpEnvironment();
}

absl::Status CheckGdnTokens(const GdnParams& p) {
  if (p.tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: expected at least 1 token, got T=", p.tokens));
  }
  if (p.q == nullptr || p.k == nullptr || p.v == nullptr || p.g == nullptr || p.beta == nullptr ||
      p.o == nullptr) {
    return absl::InvalidArgumentError("gdn: expected non-null q, k, v, g, beta and o");
  }
  return absl::OkStatus();
}

absl::Status CheckGdnOnGrid(const GdnParams& p) {
  if (p.program == GdnProgram::kChunk64 && p.document_offset % kGdnChunk != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gdn: ", kGdnChunk64Id, " expects a start on the document's grid of ",
                     kGdnChunk, " tokens, got offset ", p.document_offset));
  }
  return absl::OkStatus();
}

GdnHead GdnHeadOf(const GdnParams& p, int64_t head, int64_t first, int64_t count) {
  const int64_t key_head = head * p.key_heads / p.value_heads;
  GdnHead view;
  view.qk_stride = static_cast<size_t>(p.key_heads * p.key_dim);
  view.v_stride = view.o_stride = static_cast<size_t>(p.value_heads * p.value_dim);
  view.gate_stride = static_cast<size_t>(p.value_heads);
  const int64_t qk_at = (first * p.key_heads + key_head) * p.key_dim;
  const int64_t v_at = (first * p.value_heads + head) * p.value_dim;
  const int64_t gate_at = first * p.value_heads + head;
  view.q = Advanced(p.q, p.input_type, qk_at);
  view.k = Advanced(p.k, p.input_type, qk_at);
  view.v = Advanced(p.v, p.input_type, v_at);
  view.g = Advanced(p.g, p.gate_type, gate_at);
  view.beta = Advanced(p.beta, p.gate_type, gate_at);
  view.o = const_cast<void*>(Advanced(p.o, p.out_type, v_at));
  view.input_type = p.input_type;
  view.gate_type = p.gate_type;
  view.out_type = p.out_type;
  view.tokens = static_cast<size_t>(count);
  view.key_dim = static_cast<size_t>(p.key_dim);
  view.value_dim = static_cast<size_t>(p.value_dim);
  return view;
}

absl::Status ForEachGdnHead(const GdnParams& p,
                            absl::FunctionRef<void(int64_t head, GdnScratch& scratch)> fn) {
  std::atomic<bool> bad_environment = false;
  ParallelFor(static_cast<size_t>(p.value_heads), p.threads, [&](size_t begin, size_t end) {
    if (!CheckFpEnvironment().ok()) {
      bad_environment = true;
      return;
    }
    GdnScratch scratch(static_cast<size_t>(p.key_dim), static_cast<size_t>(p.value_dim));
    for (size_t head = begin; head < end; ++head) fn(static_cast<int64_t>(head), scratch);
  });
  if (bad_environment) {
    return absl::FailedPreconditionError(
        "gdn: a worker thread does not keep denormals or does not round to nearest even; remove "
        "the fast-math library that set it");
  }
  return absl::OkStatus();
}

absl::Status Gdn(const GdnParams& p) {
  if (absl::Status status = CheckGdnShape(p); !status.ok()) return status;
  if (absl::Status status = CheckGdnTokens(p); !status.ok()) return status;
  if (absl::Status status = CheckGdnOnGrid(p); !status.ok()) return status;
  const size_t state_floats = static_cast<size_t>(p.key_dim * p.value_dim);
  return ForEachGdnHead(p, [&](int64_t head, GdnScratch& scratch) {
    float* state = p.state + static_cast<size_t>(head) * state_floats;
    if (p.s0 == nullptr) {
      std::fill_n(state, state_floats, 0.0f);
    } else if (p.s0 != p.state) {
      memcpy(state, p.s0 + static_cast<size_t>(head) * state_floats, state_floats * sizeof(float));
    }
    const GdnHead view = GdnHeadOf(p, head, 0, p.tokens);
    if (p.program == GdnProgram::kChunk64) {
      GdnChunkHead(view, state, scratch);
    } else {
      GdnRecurrentHead(view, state, scratch);
    }
  });
}

}  // namespace lockstep::kernels
