#include "kernels/box_view.h"

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/digest.h"

namespace lockstep::kernels {
namespace {

uint64_t Volume(const std::vector<uint64_t>& dims) {
  uint64_t volume = 1;
  for (uint64_t dim : dims) volume *= dim;
  return volume;
}

// Calls `visit` with each index of a box, in row-major order.
void ForEachIndex(const std::vector<uint64_t>& extent,
                  const std::function<void(const std::vector<uint64_t>&)>& visit) {
  for (uint64_t flat = 0; flat < Volume(extent); ++flat) {
    std::vector<uint64_t> index(extent.size());
    uint64_t rest = flat;
    for (size_t d = extent.size(); d-- > 0;) {
      index[d] = rest % extent[d];
      rest /= extent[d];
    }
    visit(index);
  }
}

// Puts a box of `tensor` into a local buffer with a random order of dimensions, gaps and an
// offset, element by element, and returns its view.
struct Shard {
  BoxView view;
  std::vector<uint8_t> buffer;
};

Shard MakeShard(std::mt19937_64& random, const std::vector<uint8_t>& tensor, BoxView box) {
  const size_t rank = box.shape.size();
  const uint64_t size = box.element_bytes;
  std::vector<size_t> order(rank);  // innermost first
  for (size_t d = 0; d < rank; ++d) order[d] = rank - 1 - d;
  if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
  box.stride_bytes.assign(rank, 0);
  uint64_t stride = size * (random() % 3 == 0 ? 2 : 1);
  for (size_t d : order) {
    box.stride_bytes[d] = static_cast<int64_t>(stride);
    stride = stride * std::max<uint64_t>(box.extent[d], 1) + (random() % 3 == 0 ? size : 0);
  }
  box.offset_bytes = random() % 7;
  Shard shard{box, std::vector<uint8_t>(box.offset_bytes + stride + size, 0xEE)};
  ForEachIndex(box.extent, [&](const std::vector<uint64_t>& index) {
    uint64_t local = box.offset_bytes;
    uint64_t logical = 0;
    for (size_t d = 0; d < rank; ++d) {
      local += index[d] * static_cast<uint64_t>(box.stride_bytes[d]);
      logical = logical * box.shape[d] + box.start[d] + index[d];
    }
    memcpy(shard.buffer.data() + local, tensor.data() + logical * size, size);
  });
  return shard;
}

// Cuts a box in two along random dimensions, `depth` times.
void Cut(std::mt19937_64& random, const BoxView& box, int depth, std::vector<BoxView>& out) {
  const size_t d = box.shape.empty() ? 0 : random() % box.shape.size();
  if (depth == 0 || box.shape.empty() || box.extent[d] < 2) {
    out.push_back(box);
    return;
  }
  const uint64_t cut = 1 + random() % (box.extent[d] - 1);
  BoxView low = box;
  BoxView high = box;
  low.extent[d] = cut;
  high.start[d] += cut;
  high.extent[d] -= cut;
  Cut(random, low, depth - 1, out);
  Cut(random, high, depth - 1, out);
}

TEST(BoxViewTest, RandomDisjointBoxesInAnyLocalLayoutAddUpToTheWholeDigest) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> shape(random() % 5);
    for (uint64_t& dim : shape) dim = 1 + random() % (shape.size() <= 2 ? 300 : 24);
    const uint64_t element_bytes = uint64_t{1} << (random() % 4);
    std::vector<uint8_t> tensor(Volume(shape) * element_bytes);
    for (uint8_t& byte : tensor) byte = static_cast<uint8_t>(random());
    std::vector<BoxView> boxes;
    Cut(random, WholeTensorView(shape, element_bytes), 3, boxes);
    ASSERT_TRUE(CheckBoxesPartition(boxes).ok()) << "seed " << seed;
    PageTable sum(tensor.size());
    std::shuffle(boxes.begin(), boxes.end(), random);
    for (const BoxView& box : boxes) {
      const Shard shard = MakeShard(random, tensor, box);
      const absl::Status status =
          sum.AddView(PublicPageKeys(), shard.view, shard.buffer, 1 + seed % 3);
      ASSERT_TRUE(status.ok()) << status;
    }
    PageTable want(tensor.size());
    ASSERT_TRUE(want.Add(PublicPageKeys(), 0, tensor, 1).ok());
    EXPECT_EQ(sum, want) << "seed " << seed;
  }
}

TEST(BoxViewTest, DenseWholeTensorIsOneRun) {
  const absl::StatusOr<RunPlan> plan = PlanRuns(WholeTensorView({3, 5, 7}, 2), 210);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->run_count, 1u);
  EXPECT_EQ(plan->run_elements, 105u);
}

TEST(BoxViewTest, NegativeStridesAreFollowedInsideTheBuffer) {
  // A row kept back to front.
  const std::vector<uint8_t> reversed = {4, 3, 2, 1};
  BoxView view = WholeTensorView({4}, 1);
  view.offset_bytes = 3;
  view.stride_bytes = {-1};
  PageTable table(4);
  ASSERT_TRUE(table.AddView(PublicPageKeys(), view, reversed, 1).ok());
  PageTable want(4);
  const std::vector<uint8_t> forward = {1, 2, 3, 4};
  ASSERT_TRUE(want.Add(PublicPageKeys(), 0, forward, 1).ok());
  EXPECT_EQ(table, want);
  view.offset_bytes = 2;
  EXPECT_FALSE(PlanRuns(view, 4).ok());
}

TEST(BoxViewTest, BadViewsAreRefused) {
  const BoxView good = WholeTensorView({4, 4}, 2);
  EXPECT_TRUE(PlanRuns(good, 32).ok());
  EXPECT_FALSE(PlanRuns(good, 31).ok());
  BoxView view = good;
  view.start = {1, 0};
  EXPECT_FALSE(PlanRuns(view, 32).ok());
  view = good;
  view.extent = {4, 5};
  EXPECT_FALSE(PlanRuns(view, 1'000).ok());
  view = good;
  view.start.pop_back();
  EXPECT_FALSE(PlanRuns(view, 32).ok());
  view = good;
  view.element_bytes = 0;
  EXPECT_FALSE(PlanRuns(view, 32).ok());
  view = good;
  view.stride_bytes = {std::numeric_limits<int64_t>::max(), 2};
  EXPECT_FALSE(PlanRuns(view, 32).ok());
  view = good;
  view.offset_bytes = ~uint64_t{0};
  EXPECT_FALSE(PlanRuns(view, 32).ok());
  BoxView huge = WholeTensorView({1, 1}, 2);
  huge.shape = {uint64_t{1} << 40, uint64_t{1} << 40};
  EXPECT_FALSE(PlanRuns(huge, 32).ok());
  EXPECT_FALSE(PlanRuns(WholeTensorView(std::vector<uint64_t>(17, 1), 2), 32).ok());
}

TEST(BoxViewTest, EmptyBoxesAddNothing) {
  PageTable table(0);
  EXPECT_TRUE(table.AddView(PublicPageKeys(), WholeTensorView({3, 0}, 2), {}, 4).ok());
  EXPECT_TRUE(table.CheckCovered().ok());
}

TEST(BoxViewTest, PlansThatOverlapOrLeaveGapsAreRefused) {
  BoxView left = WholeTensorView({4, 6}, 2);
  BoxView right = left;
  left.extent = {4, 3};
  right.start = {0, 3};
  right.extent = {4, 3};
  EXPECT_TRUE(CheckBoxesPartition({left, right}).ok());
  EXPECT_FALSE(CheckBoxesPartition({left}).ok());
  EXPECT_FALSE(CheckBoxesPartition({left, left}).ok());  // right size, one half twice
  right.start = {0, 2};
  EXPECT_FALSE(CheckBoxesPartition({left, right}).ok());
  BoxView other = left;
  other.shape = {6, 4};
  other.extent = {4, 3};
  EXPECT_FALSE(CheckBoxesPartition({left, other}).ok());
  EXPECT_FALSE(CheckBoxesPartition({}).ok());
}

}  // namespace
}  // namespace lockstep::kernels
