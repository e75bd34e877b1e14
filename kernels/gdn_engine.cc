#include "kernels/gdn_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gdn_engine.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/exact_math.h"
#include "kernels/float_formats.h"
#include "kernels/gdn_chain-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {

constexpr float kNormEpsilon = 1e-6f;

inline size_t Padded(size_t n) { return (n + kChainColumns - 1) / kChainColumns * kChainColumns; }

// Where the pieces of the scratch lie; one row of [.., K], [.., V] or [.., chunk] each, padded.
struct Work {
  Rows k, q, v;               // [chunk, .]: normalised keys, normalised and scaled queries, values
  Rows k_columns, q_columns;  // [K, chunk]: the same, transposed
  Rows products;              // [chunk, chunk]: k_i . k_j, then q_i . k_j e^(G_i - G_j)
  Rows decay;                 // [chunk, chunk]: e^(G_i - G_j) for j <= i
  Rows a, t;                  // [chunk, chunk]
  Rows beta_v, beta_k;        // [chunk, .]
  Rows u, w;                  // [chunk, .]
  Rows corrected;             // [chunk, V]: V' = U - W S0
  Rows term;                  // [max(chunk, K), max(K, V)]
  Rows term2;                 // the same
  Rows k_end;                 // [K, chunk]: k_i e^(G_last - G_i), transposed
  Rows q_grown;               // [chunk, K]: q_i e^(G_i)
  Rows state;                 // [K, V]
  Rows chunk_m, run_m;        // [K, K]
  Rows chunk_b, run_b;        // [K, V]
  float* grown;               // [chunk]: e^(G_i)
  float* gates;               // [chunk]: g, then its cumulative sum G
  float* beta;                // [chunk]
  size_t floats;              // taken
};

Work LayOut(float* base, size_t key_dim, size_t value_dim) {
  const size_t kp = Padded(key_dim);
  const size_t vp = Padded(value_dim);
  const size_t wide = std::max(kp, vp);
  const size_t tall = std::max(kGdnChunk, key_dim);
  size_t used = 0;
  const auto take = [&](size_t rows, size_t stride) {
    const Rows piece{base + used, stride};
    used += rows * stride;
    return piece;
  };
  Work work;
  work.k = take(kGdnChunk, kp), work.q = take(kGdnChunk, kp), work.v = take(kGdnChunk, vp);
  work.k_columns = take(key_dim, kGdnChunk), work.q_columns = take(key_dim, kGdnChunk);
  work.products = take(kGdnChunk, kGdnChunk), work.decay = take(kGdnChunk, kGdnChunk);
  work.a = take(kGdnChunk, kGdnChunk), work.t = take(kGdnChunk, kGdnChunk);
  work.beta_v = take(kGdnChunk, vp), work.beta_k = take(kGdnChunk, kp);
  work.u = take(kGdnChunk, vp), work.w = take(kGdnChunk, kp);
  work.corrected = take(kGdnChunk, vp);
  work.term = take(tall, wide), work.term2 = take(tall, wide);
  work.k_end = take(key_dim, kGdnChunk), work.q_grown = take(kGdnChunk, kp);
  work.state = take(key_dim, vp);
  work.chunk_m = take(key_dim, kp), work.run_m = take(key_dim, kp);
  work.chunk_b = take(key_dim, vp), work.run_b = take(key_dim, vp);
  work.grown = take(1, kGdnChunk).data;
  work.gates = take(1, kGdnChunk).data;
  work.beta = take(1, kGdnChunk).data;
  work.floats = used;
  return work;
}

inline float LoadFloat(FloatType type, const void* from, size_t at) {
  if (type == FloatType::kBf16) return Bf16::Load(static_cast<const uint16_t*>(from)[at]);
  return static_cast<const float*>(from)[at];
}

// Tokens [first, first + count) of q or k, normalised (x / sqrt(sum x^2 + eps)) and times `scale`,
// in both orders. Lanes are tokens, so that each token's sum is its own chain; columns past
// `count` are zeros.
void LoadNormalised(const GdnHead& head, const void* from, size_t first, size_t count, bool scaled,
                    Rows columns, Rows rows) {
  for (size_t c = 0; c < head.key_dim; ++c) {
    std::fill_n(columns[c], kGdnChunk, 0.0f);
    for (size_t i = 0; i < count; ++i) {
      columns[c][i] = LoadFloat(head.input_type, from, (first + i) * head.qk_stride + c);
    }
  }
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head.key_dim)));
  ForVectors(kGdnChunk, [&](auto d, size_t i) {
    auto sum = hn::Zero(d);
    for (size_t c = 0; c < head.key_dim; ++c) {
      const auto x = hn::Load(d, columns[c] + i);
      sum = FusedMulAdd(d, x, x, sum);
    }
    const auto root = hn::Sqrt(hn::Add(sum, hn::Set(d, kNormEpsilon)));
    const auto inverse = hn::Div(hn::Set(d, 1.0f), root);
    for (size_t c = 0; c < head.key_dim; ++c) {
      auto x = hn::Mul(hn::Load(d, columns[c] + i), inverse);
      if (scaled) x = hn::Mul(x, hn::Set(d, scale));
      hn::Store(x, d, columns[c] + i);
    }
  });
  for (size_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < head.key_dim; ++c) rows[i][c] = columns[c][i];
  }
}

// Keys, values, gates and (unless only the map of the state is wanted) queries of a chunk.
void LoadChunk(const GdnHead& head, size_t first, size_t count, bool with_queries, Work& work) {
  LoadNormalised(head, head.k, first, count, false, work.k_columns, work.k);
  if (with_queries) LoadNormalised(head, head.q, first, count, true, work.q_columns, work.q);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (first + i) * head.v_stride;
    for (size_t c = 0; c < head.value_dim; ++c) {
      work.v[i][c] = LoadFloat(head.input_type, head.v, at + c);
    }
    work.gates[i] = LoadFloat(head.gate_type, head.g, (first + i) * head.gate_stride);
    work.beta[i] = LoadFloat(head.gate_type, head.beta, (first + i) * head.gate_stride);
  }
}

void StoreOutput(const GdnHead& head, size_t token, const float* from) {
  const size_t at = token * head.o_stride;
  for (size_t c = 0; c < head.value_dim; ++c) {
    if (head.out_type == FloatType::kBf16) {
      static_cast<uint16_t*>(head.o)[at + c] = Bf16::Store(from[c]);
    } else {
      static_cast<float*>(head.o)[at + c] = F32::Store(from[c]);
    }
  }
}

void CopyIn(const float* from, size_t rows, size_t columns, Rows to) {
  for (size_t r = 0; r < rows; ++r) {
    memcpy(to[r], from + r * columns, columns * sizeof(float));
    std::fill(to[r] + columns, to[r] + to.stride, 0.0f);
  }
}

void CopyOut(Rows from, size_t rows, size_t columns, float* to) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) to[r * columns + c] = F32::Store(from[r][c]);
  }
}

// The part of the chunk form that needs no state: G, decay, A, T, U, W and the keys decayed to the
// chunk's end.
void PrepareChunk(const GdnHead& head, size_t count, Work& work) {
  const size_t kp = Padded(head.key_dim);
  const size_t vp = Padded(head.value_dim);
  for (size_t i = 1; i < count; ++i) work.gates[i] = work.gates[i - 1] + work.gates[i];
  ChainRows<Limit::kAll>(work.k, work.k_columns, count, head.key_dim, kGdnChunk, work.products);
  for (size_t i = 0; i < count; ++i) {
    work.grown[i] = ExpF32(work.gates[i]);
    for (size_t j = 0; j <= i; ++j) {
      work.decay[i][j] = ExpF32(work.gates[i] - work.gates[j]);
    }
    for (size_t j = 0; j < i; ++j) {
      work.a[i][j] = (work.beta[i] * work.products[i][j]) * work.decay[i][j];
    }
  }
  for (size_t i = 0; i < count; ++i) {
    // Row i of T = -(row i of A) * (rows of T above), with its 1 on the diagonal.
    ChainRows<Limit::kAll>({work.a[i], 0}, work.t, 1, i, kGdnChunk, {work.t[i], 0});
    for (size_t j = 0; j < i; ++j) work.t[i][j] = -work.t[i][j];
    work.t[i][i] = 1.0f;
    std::fill(work.t[i] + i + 1, work.t[i] + kGdnChunk, 0.0f);
    const float grown_beta = work.beta[i] * work.grown[i];
    ForVectors(vp, [&](auto d, size_t c) {
      hn::Store(hn::Mul(hn::Set(d, work.beta[i]), hn::Load(d, work.v[i] + c)), d,
                work.beta_v[i] + c);
    });
    ForVectors(kp, [&](auto d, size_t c) {
      hn::Store(hn::Mul(hn::Set(d, grown_beta), hn::Load(d, work.k[i] + c)), d, work.beta_k[i] + c);
    });
  }
  ChainRows<Limit::kTriangle>(work.t, work.beta_v, count, count, vp, work.u);
  ChainRows<Limit::kTriangle>(work.t, work.beta_k, count, count, kp, work.w);
  for (size_t c = 0; c < head.key_dim; ++c) {
    for (size_t i = 0; i < count; ++i) {
      work.k_end[c][i] = work.k_columns[c][i] * work.decay[count - 1][i];
    }
  }
}

// The outputs of a prepared chunk that starts at token `first`, and the state after it.
void FinishChunk(const GdnHead& head, size_t first, size_t count, Work& work) {
  const size_t vp = Padded(head.value_dim);
  ChainRows<Limit::kAll>(work.w, work.state, count, head.key_dim, vp, work.term);
  for (size_t i = 0; i < count; ++i) {
    ForVectors(vp, [&](auto d, size_t c) {
      hn::Store(hn::Sub(hn::Load(d, work.u[i] + c), hn::Load(d, work.term[i] + c)), d,
                work.corrected[i] + c);
    });
    for (size_t c = 0; c < head.key_dim; ++c) {
      work.q_grown[i][c] = work.q[i][c] * work.grown[i];
    }
  }
  ChainRows<Limit::kAll>(work.q, work.k_columns, count, head.key_dim, kGdnChunk, work.products);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j <= i; ++j) work.products[i][j] *= work.decay[i][j];
  }
  ChainRows<Limit::kAll>(work.q_grown, work.state, count, head.key_dim, vp, work.term);
  ChainRows<Limit::kTriangle>(work.products, work.corrected, count, count, vp, work.term2);
  for (size_t i = 0; i < count; ++i) {
    ForVectors(vp, [&](auto d, size_t c) {
      hn::Store(hn::Add(hn::Load(d, work.term[i] + c), hn::Load(d, work.term2[i] + c)), d,
                work.term[i] + c);
    });
    StoreOutput(head, first + i, work.term[i]);
  }
  ChainRows<Limit::kAll>(work.k_end, work.corrected, head.key_dim, count, vp, work.term);
  const float end_growth = work.grown[count - 1];
  for (size_t r = 0; r < head.key_dim; ++r) {
    ForVectors(vp, [&](auto d, size_t c) {
      const auto kept = hn::Mul(hn::Set(d, end_growth), hn::Load(d, work.state[r] + c));
      hn::Store(hn::Add(kept, hn::Load(d, work.term[r] + c)), d, work.state[r] + c);
    });
  }
}

size_t ScratchFloats(size_t key_dim, size_t value_dim) {
  return LayOut(nullptr, key_dim, value_dim).floats;
}

Work ClearedWork(const GdnHead& head, float* scratch) {
  const size_t floats = ScratchFloats(head.key_dim, head.value_dim);
  std::fill_n(scratch, floats, 0.0f);  // padding is read, and denormal rubbish would be slow
  return LayOut(scratch, head.key_dim, head.value_dim);
}

void ChunkHead(const GdnHead& head, float* state, float* scratch) {
  Work work = ClearedWork(head, scratch);
  CopyIn(state, head.key_dim, head.value_dim, work.state);
  for (size_t first = 0; first < head.tokens; first += kGdnChunk) {
    const size_t count = std::min(kGdnChunk, head.tokens - first);
    LoadChunk(head, first, count, true, work);
    PrepareChunk(head, count, work);
    FinishChunk(head, first, count, work);
  }
  CopyOut(work.state, head.key_dim, head.value_dim, state);
}

// One token: S = e^g S; d = beta (v - S^T k); S = S + k d^T; o = S^T q.
void RecurrentStep(const GdnHead& head, size_t i, Work& work) {
  const float growth = ExpF32(work.gates[i]);
  ForVectors(Padded(head.value_dim), [&](auto d, size_t c) {
    auto recalled = hn::Zero(d);
    for (size_t r = 0; r < head.key_dim; ++r) {
      const auto s = hn::Mul(hn::Set(d, growth), hn::Load(d, work.state[r] + c));
      hn::Store(s, d, work.state[r] + c);
      recalled = FusedMulAdd(d, s, hn::Set(d, work.k[i][r]), recalled);
    }
    const auto delta =
        hn::Mul(hn::Set(d, work.beta[i]), hn::Sub(hn::Load(d, work.v[i] + c), recalled));
    auto out = hn::Zero(d);
    for (size_t r = 0; r < head.key_dim; ++r) {
      const auto s =
          FusedMulAdd(d, hn::Set(d, work.k[i][r]), delta, hn::Load(d, work.state[r] + c));
      hn::Store(s, d, work.state[r] + c);
      out = FusedMulAdd(d, s, hn::Set(d, work.q[i][r]), out);
    }
    hn::Store(out, d, work.term[0] + c);
  });
}

void RecurrentHead(const GdnHead& head, float* state, float* scratch) {
  Work work = ClearedWork(head, scratch);
  CopyIn(state, head.key_dim, head.value_dim, work.state);
  for (size_t first = 0; first < head.tokens; first += kGdnChunk) {
    const size_t count = std::min(kGdnChunk, head.tokens - first);
    LoadChunk(head, first, count, true, work);
    for (size_t i = 0; i < count; ++i) {
      RecurrentStep(head, i, work);
      StoreOutput(head, first + i, work.term[0]);
    }
  }
  CopyOut(work.state, head.key_dim, head.value_dim, state);
}

// The map of one prepared chunk: M = e^(G_last) I - K_end^T W, b = K_end^T U.
void ChunkMap(const GdnHead& head, size_t count, Work& work) {
  const size_t kp = Padded(head.key_dim);
  ChainRows<Limit::kAll>(work.k_end, work.w, head.key_dim, count, kp, work.term);
  for (size_t r = 0; r < head.key_dim; ++r) {
    for (size_t c = 0; c < head.key_dim; ++c) {
      work.chunk_m[r][c] = (r == c ? work.grown[count - 1] : 0.0f) - work.term[r][c];
    }
  }
  ChainRows<Limit::kAll>(work.k_end, work.u, head.key_dim, count, Padded(head.value_dim),
                         work.chunk_b);
}

// to = m * from + b, or m * from when b is null; `to` may be `from`.
void Advance(Rows m, Rows from, const Rows* b, size_t key_dim, size_t columns, Rows term, Rows to) {
  ChainRows<Limit::kAll>(m, from, key_dim, key_dim, columns, term);
  for (size_t r = 0; r < key_dim; ++r) {
    ForVectors(columns, [&](auto d, size_t c) {
      auto x = hn::Load(d, term[r] + c);
      if (b != nullptr) x = hn::Add(x, hn::Load(d, (*b)[r] + c));
      hn::Store(x, d, to[r] + c);
    });
  }
}

void AffineHead(const GdnHead& head, float* m, float* b, float* scratch) {
  Work work = ClearedWork(head, scratch);
  const size_t kp = Padded(head.key_dim);
  const size_t vp = Padded(head.value_dim);
  for (size_t first = 0; first < head.tokens; first += kGdnChunk) {
    const size_t count = std::min(kGdnChunk, head.tokens - first);
    LoadChunk(head, first, count, false, work);
    PrepareChunk(head, count, work);
    ChunkMap(head, count, work);
    if (first == 0) {
      std::swap(work.run_m, work.chunk_m);
      std::swap(work.run_b, work.chunk_b);
      continue;
    }
    Advance(work.chunk_m, work.run_m, nullptr, head.key_dim, kp, work.term, work.run_m);
    Advance(work.chunk_m, work.run_b, &work.chunk_b, head.key_dim, vp, work.term, work.run_b);
  }
  CopyOut(work.run_m, head.key_dim, head.key_dim, m);
  CopyOut(work.run_b, head.key_dim, head.value_dim, b);
}

void AdvanceState(const float* m, const float* b, size_t key_dim, size_t value_dim, float* state,
                  float* scratch) {
  GdnHead head;
  head.key_dim = key_dim;
  head.value_dim = value_dim;
  Work work = ClearedWork(head, scratch);
  CopyIn(m, key_dim, key_dim, work.run_m);
  CopyIn(b, key_dim, value_dim, work.run_b);
  CopyIn(state, key_dim, value_dim, work.state);
  Advance(work.run_m, work.state, &work.run_b, key_dim, Padded(value_dim), work.term, work.state);
  CopyOut(work.state, key_dim, value_dim, state);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {

HWY_EXPORT(ScratchFloats);
HWY_EXPORT(ChunkHead);
HWY_EXPORT(RecurrentHead);
HWY_EXPORT(AffineHead);
HWY_EXPORT(AdvanceState);

GdnScratch::GdnScratch(size_t key_dim, size_t value_dim)
    : floats_(
          hwy::AllocateAligned<float>(HWY_DYNAMIC_DISPATCH(ScratchFloats)(key_dim, value_dim))) {}

void GdnRecurrentHead(const GdnHead& head, float* state, GdnScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RecurrentHead)(head, state, scratch.data());
}

void GdnChunkHead(const GdnHead& head, float* state, GdnScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(ChunkHead)(head, state, scratch.data());
}

void GdnAffineHead(const GdnHead& head, float* m, float* b, GdnScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(AffineHead)(head, m, b, scratch.data());
}

void GdnAdvanceState(const float* m, const float* b, size_t key_dim, size_t value_dim, float* state,
                     GdnScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(AdvanceState)(m, b, key_dim, value_dim, state, scratch.data());
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
