#ifndef LOCKSTEP_BRIDGE_TRANSPORT_PROBE_RUNNER_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_PROBE_RUNNER_H_

// Runs a probe plan (policy/probe_plan.h) with the exact kernels over the weights of this
// process: the trainer over its own tensors, a sampler over what is installed. Here and not
// in policy, which is pure, nor in kernels, which knows no policy; both clients use it.
//
// Example:
//   auto digests = RunProbe(plan, [&](size_t tensor) { return served.Tensor(tensor); }, threads);
//
// Seeded values `probe input@v1`: value i of the stream with a name is made from bytes
// [2i, 2i+2) of the concatenation, for n = 0, 1, ..., of BLAKE2b-256("lockstep probe input@v1\n",
// seed u64, uint32 length and bytes of the name, n u64), read as a little-endian int16 v:
// v / 16384 as float32 (exact, in [-2, 2)), then rounded once to the component's dtype. A
// component's input has the component's name; its operand k has NAME + ".operand." + k.
//
// A component's digest `probe component@v1`: BLAKE2b-256("lockstep probe component@v1\n", then
// as strings (uint32 length, bytes) name, program, realisation and dtype, then u64 rows and
// columns of the output, then its bytes, row-major little-endian); all integers little-endian.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/contract.h"
#include "policy/evidence.h"
#include "policy/probe_plan.h"
#include "policy/protocol.h"

namespace lockstep::transport {

// Bytes of Manifest::tensors[index], row-major, little-endian, any alignment.
using TensorBytesRef = absl::FunctionRef<absl::Span<const uint8_t>(size_t index)>;

// One digest a component, in the plan's order. NotFound for a realisation that this build has
// no table of; InvalidArgument for a program it does not have, or a tensor that is too short.
absl::StatusOr<std::vector<ComponentDigest>> RunProbe(const ProbePlan& plan,
                                                      TensorBytesRef tensor_bytes, int threads);

// What this build shows at registration: the digests of every SiLU table it holds, and its
// results of RegistrationProbePlan. Costs milliseconds the first time.
absl::StatusOr<Evidence> MakeEvidence();

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_PROBE_RUNNER_H_
