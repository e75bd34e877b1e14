#include "bridge/loop/daemon_flags.h"

#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

std::string ErrorOf(const std::vector<std::string>& words) {
  const absl::StatusOr<DaemonFlags> flags = ParseDaemonFlags(words);
  return flags.ok() ? "" : std::string(flags.status().message());
}

TEST(DaemonFlagsTest, NoFlagsAreTheDocumentedDefaults) {
  const DaemonFlags flags = ParseDaemonFlags({}).value();
  EXPECT_EQ(flags.listen, "");
  EXPECT_EQ(flags.config.run, "default");
  EXPECT_EQ(flags.config.max_lag, 0u);
  EXPECT_EQ(flags.config.kept_versions, 2u);
  EXPECT_EQ(flags.config.rescore_timeout_ms, 300'000);
  EXPECT_LT(flags.config.tolerance_mean_k3, 0);
}

TEST(DaemonFlagsTest, EveryFlagReachesItsSetting) {
  const DaemonFlags flags = ParseDaemonFlags({"--listen",
                                              "tcp://127.0.0.1:5",
                                              "--state-dir=x",
                                              "--run",
                                              "grpo-7",
                                              "--keys",
                                              "b.key",
                                              "--allow-list",
                                              "peers",
                                              "--log-level",
                                              "debug",
                                              "--max-lag=3",
                                              "--allow-mixed-versions",
                                              "--tolerance-max-abs-diff",
                                              "0.5",
                                              "--tolerance-mean-k3=1e-3",
                                              "--rescore-timeout-s",
                                              "1.5",
                                              "--round-timeout-s",
                                              "2",
                                              "--lease-ms",
                                              "700",
                                              "--kept-versions",
                                              "4",
                                              "--spool-max-bytes",
                                              "0",
                                              "--source-role",
                                              "critic",
                                              "--version"})
                                .value();
  EXPECT_EQ(flags.listen, "tcp://127.0.0.1:5");
  EXPECT_EQ(flags.state_dir, "x");
  EXPECT_EQ(flags.config.run, "grpo-7");
  EXPECT_EQ(flags.keys_path, "b.key");
  EXPECT_EQ(flags.allow_list_path, "peers");
  EXPECT_EQ(flags.log_level, LogLevel::kDebug);
  EXPECT_EQ(flags.config.max_lag, 3u);
  EXPECT_TRUE(flags.config.allow_mixed_versions);
  EXPECT_EQ(flags.config.tolerance_max_abs_diff, 0.5);
  EXPECT_EQ(flags.config.tolerance_mean_k3, 1e-3);
  EXPECT_EQ(flags.config.rescore_timeout_ms, 1'500);
  EXPECT_EQ(flags.config.round_timeout_base_ms, 2'000);
  EXPECT_EQ(flags.config.lease_ms, 700);
  EXPECT_EQ(flags.config.kept_versions, 4u);
  EXPECT_EQ(flags.config.spool_max_bytes, 0u);
  EXPECT_EQ(flags.config.source_role, SourceRole::kCritic);
  EXPECT_TRUE(flags.version);
  EXPECT_FALSE(flags.help);
}

TEST(DaemonFlagsTest, UnknownFlagNamesTheNearest) {
  EXPECT_EQ(ErrorOf({"--state-dri", "x"}),
            "unknown flag '--state-dri'; did you mean --state-dir? --help lists all flags");
}

TEST(DaemonFlagsTest, WhatCannotBeMeantIsAnError) {
  EXPECT_EQ(ErrorOf({"--run"}), "--run needs a value: NAME");
  EXPECT_EQ(ErrorOf({"--help=1"}), "--help takes no value");
  EXPECT_EQ(ErrorOf({"--run=a", "--run=b"}), "--run is given twice");
  EXPECT_NE(ErrorOf({"serve"}).find("'serve' is no flag"), std::string::npos);
  for (const char* word :
       {"--max-lag=-1", "--max-lag= 1", "--max-lag=", "--lease-ms=1", "--kept-versions=0",
        "--kept-versions=99", "--run=../x", "--run=.x", "--run=", "--log-level=loud",
        "--source-role=boss", "--rescore-timeout-s=nan", "--rescore-timeout-s=0",
        "--tolerance-mean-k3=-1", "--listen="}) {
    EXPECT_NE(ErrorOf({word}), "") << word;
  }
}

TEST(DaemonFlagsTest, HalfAToleranceIsAnError) {
  EXPECT_NE(ErrorOf({"--tolerance-mean-k3=1"}).find("give both"), std::string::npos);
}

TEST(DaemonFlagsTest, UsageNamesEveryFlag) {
  const std::string usage = DaemonUsage();
  for (const char* flag : {"--listen ADDR", "--state-dir DIR", "--keys FILE", "--help",
                           "--tolerance-max-abs-diff X ", "--lease-ms MS"}) {
    EXPECT_NE(usage.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace lockstep::loop
