#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::kernels {
namespace {

TEST(ParallelForTest, EveryIndexRunsOnceForAnySplit) {
  for (size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{64}, size_t{1001}}) {
    for (int threads : {-3, 0, 1, 2, 3, 8, 1000}) {
      std::vector<std::atomic<int>> hits(n);
      ParallelFor(n, threads, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++hits[i];
      });
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(hits[i], 1) << n << " " << threads << " " << i;
    }
  }
}

TEST(ParallelForTest, RangesAreContiguousAndBalanced) {
  std::mutex mutex;
  std::vector<std::pair<size_t, size_t>> ranges;
  ParallelFor(10, 4, [&](size_t begin, size_t end) {
    std::lock_guard<std::mutex> lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  const std::vector<std::pair<size_t, size_t>> want = {{0, 3}, {3, 6}, {6, 8}, {8, 10}};
  EXPECT_EQ(ranges, want);
}

TEST(ParallelForTest, OneThreadRunsInlineInOneCall) {
  int calls = 0;
  ParallelFor(5, 1, [&](size_t begin, size_t end) {
    ++calls;
    EXPECT_EQ(begin, 0u);
    EXPECT_EQ(end, 5u);
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace lockstep::kernels
