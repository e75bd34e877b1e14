#include "kernels/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <vector>

namespace lockstep::kernels {
namespace {

struct Range {
  absl::FunctionRef<void(size_t, size_t)> fn;
  size_t begin;
  size_t end;
};

void* RunRange(void* argument) {
  const auto* range = static_cast<const Range*>(argument);
  range->fn(range->begin, range->end);
  return nullptr;
}

}  // namespace

void ParallelFor(size_t n, int threads, absl::FunctionRef<void(size_t begin, size_t end)> fn) {
  if (n == 0) return;
  const size_t parts = std::min<size_t>(n, std::clamp(threads, 1, kMaxThreads));
  if (parts == 1) {
    fn(0, n);
    return;
  }
  std::vector<Range> ranges;
  ranges.reserve(parts);
  size_t begin = 0;
  for (size_t i = 0; i < parts; ++i) {
    const size_t end = begin + n / parts + (i < n % parts ? 1 : 0);
    ranges.push_back({fn, begin, end});
    begin = end;
  }
  // pthread_create reports a refusal instead of throwing, so such a range can run here.
  std::vector<pthread_t> started;
  started.reserve(parts - 1);
  size_t next = 1;
  for (; next < parts; ++next) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &RunRange, &ranges[next]) != 0) break;
    started.push_back(thread);
  }
  RunRange(&ranges[0]);
  for (; next < parts; ++next) RunRange(&ranges[next]);
  for (pthread_t thread : started) pthread_join(thread, nullptr);
}

}  // namespace lockstep::kernels
