#ifndef LOCKSTEP_POLICY_PROBE_PLAN_H_
#define LOCKSTEP_POLICY_PROBE_PLAN_H_

// Which small exact computations trainer and sampler both run over their own live weights
// before a version goes live, so that equal bytes *and* equal kernels are shown. A plan is a
// function of manifest, contract and the version's probe seed alone; bridge/transport's
// probe_runner runs it. Per layer: norm, gate|up product, SwiGLU, down product; at the end the
// final norm and the head. In a layer with experts: the shared expert and one routed expert
// that the seed chooses. A checkpoint whose names say nothing gets one product a matrix.
//
// Example:
//   ProbePlan plan = DeriveProbePlan(manifest, contract, accepted.probe_seed);
//   plan.components[2].name;  // "layers.0.mlp.swiglu"
//
// Large matrices are probed in a block of kProbeMaxRows rows whose place the seed chooses, so
// that the cost of a probe grows with the number of layers and the hidden size only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policy/contract.h"
#include "policy/manifest.h"

namespace lockstep {

inline constexpr uint64_t kProbeTokens = 4;             // rows of every input
inline constexpr uint64_t kProbeMaxRows = 1'024;        // of a matrix, the block
inline constexpr uint64_t kProbeMaxColumns = 65'536;    // wider matrices are left out
inline constexpr uint64_t kProbeMaxComponents = 8'192;  // later layers are left out
inline constexpr uint64_t kProbeMaxGeneric = 256;       // products of a generic plan
inline constexpr uint64_t kProbeBlockBytes = 65'536;    // of a component that only reads

enum class ProbeOp {
  kRmsNorm,
  kGemm,
  kSwiglu,
  kBytes,  // no arithmetic: for tensors that no exact program takes
};

// A matrix inside a tensor: `rows` rows of `columns` elements, from element `offset`,
// `row_stride` elements apart. A vector has one row.
struct ProbeOperand {
  // Index into Manifest::tensors; absent: seeded values (see probe_runner), named after the
  // component.
  std::optional<size_t> tensor;
  uint64_t offset = 0;
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t row_stride = 0;
  Dtype dtype = Dtype::kBF16;

  bool operator==(const ProbeOperand&) const = default;
};

struct ProbeComponent {
  std::string name;
  ProbeOp op = ProbeOp::kGemm;
  std::string program;         // "gemm/k_chain@v1"; empty for kBytes
  std::string realisation;     // of SiLU, for kSwiglu
  Dtype dtype = Dtype::kBF16;  // of input and output: BF16 or F16
  // The component whose output is the input [rows, in_columns]; absent: seeded.
  std::optional<size_t> input;
  uint64_t rows = kProbeTokens;
  uint64_t in_columns = 0;
  uint64_t out_columns = 0;
  // kGemm: matrices whose products lie side by side in the output (gate and up, or one).
  // kRmsNorm: the weight. kBytes: what is read. kSwiglu: none; its input is gate|up.
  std::vector<ProbeOperand> operands;
  float eps = 0;               // kRmsNorm
  bool zero_centered = false;  // kRmsNorm
  float limit = 0;             // kSwiglu, the clamped program

  bool operator==(const ProbeComponent&) const = default;
};

struct ProbePlan {
  uint64_t seed = 0;
  std::vector<ProbeComponent> components;  // inputs come before their users; names are unique
};

// Never empty. `manifest` must have passed CheckManifest.
ProbePlan DeriveProbePlan(const Manifest& manifest, const Contract& contract, uint64_t seed);

// What a build shows at registration (Evidence::probe): every program a probe runs, over
// seeded operands, no weights; the same for every contract. Component names are program ids.
ProbePlan RegistrationProbePlan();

// The seed of RegistrationProbePlan.
inline constexpr uint64_t kRegistrationProbeSeed = 0x4C4F434B53544550;  // "LOCKSTEP"

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_PROBE_PLAN_H_
