#include "bridge/loop/log.h"

#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

TEST(LogTest, AnEventIsOneLineOfKeyValueFields) {
  EXPECT_EQ(FormatLogLine(absl::FromUnixMillis(1'700'000'000'123), LogLevel::kInfo, "live",
                          {{"subject", "sampler s1"}, {"version", "3"}, {"reason", ""}}),
            "2023-11-14T22:13:20.123Z level=info event=live subject=\"sampler s1\" version=3 "
            "reason=\"\"");
}

TEST(LogTest, APeersTextCannotStartALineOrAField) {
  const std::string line = FormatLogLine(absl::UnixEpoch(), LogLevel::kWarning, "refuse",
                                         {{"text", "a\nlevel=error \"b\"\x01"}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NE(line.find(R"(text="a\nlevel=error \"b\"\001")"), std::string::npos) << line;
}

}  // namespace
}  // namespace lockstep::loop
