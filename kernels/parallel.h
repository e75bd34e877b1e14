#ifndef LOCKSTEP_KERNELS_PARALLEL_H_
#define LOCKSTEP_KERNELS_PARALLEL_H_

// Splits an index range over threads. Results of a kernel never depend on the split:
// each index is computed whole by one thread, and a reduction never crosses indices.
//
// Example:
//   ParallelFor(rows, threads, [&](size_t begin, size_t end) {
//     for (size_t row = begin; row < end; ++row) NormaliseRow(row);
//   });

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace lockstep::kernels {

// Threads beyond this are never started, whatever the caller asks for.
inline constexpr int kMaxThreads = 256;

// Calls `fn(begin, end)` on disjoint contiguous ranges that cover [0, n) once, sizes
// differing by at most one, on at most `threads` threads of which the caller's is one.
// threads <= 1 or n <= 1 runs inline; n = 0 makes no call. Returns when all ranges are
// done. Threads are started for the call and joined in it, so a caller with little work
// passes 1; when the system refuses a thread, its range runs on the caller's.
// New threads inherit the caller's floating-point control word.
void ParallelFor(size_t n, int threads, absl::FunctionRef<void(size_t begin, size_t end)> fn);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_PARALLEL_H_
