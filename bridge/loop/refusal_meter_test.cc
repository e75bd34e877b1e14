#include "bridge/loop/refusal_meter.h"

#include <limits>

#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

TEST(RefusalMeterTest, TheFirstIsReportedAtOnceAndAFloodOnceASecond) {
  RefusalMeter meter;
  EXPECT_EQ(meter.NextDueMs(), std::numeric_limits<int64_t>::max());
  meter.Add(RefusalCode::kUnauthorised, "bulk port", 1, "a wrong password");
  ASSERT_LE(meter.NextDueMs(), 5'000);
  ASSERT_EQ(meter.TakeDue(5'000).size(), 1u);
  for (int i = 0; i < 1'000; ++i) meter.Add(RefusalCode::kUnauthorised, "bulk port", 2, "again");
  EXPECT_TRUE(meter.TakeDue(5'999).empty());
  EXPECT_EQ(meter.NextDueMs(), 6'000);
  const std::vector<core::MalformedMessage> reports = meter.TakeDue(6'000);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].peer, 0u);
  EXPECT_EQ(reports[0].refusal.code, RefusalCode::kUnauthorised);
  EXPECT_EQ(reports[0].refusal.message, "bulk port: 2000 times, the newest: again");
  EXPECT_TRUE(meter.TakeDue(60'000).empty());
}

TEST(RefusalMeterTest, PlacesAndReasonsAreCountedApart) {
  RefusalMeter meter;
  meter.Add(RefusalCode::kUnauthorised, "bulk port", 1, "a");
  meter.Add(RefusalCode::kBadMessage, "bulk port", 1, "b");
  meter.Add(RefusalCode::kUnauthorised, "control port", 1, "c");
  meter.Add(RefusalCode::kUnauthorised, "nowhere", 0, "d");
  EXPECT_EQ(meter.TakeDue(1).size(), 3u);
}

}  // namespace
}  // namespace lockstep::loop
