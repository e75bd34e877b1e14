#include "policy/refusal.h"

#include <set>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kCodes = static_cast<int>(RefusalCode::kShuttingDown) + 1;

TEST(RefusalTest, EveryCodeHasAUniqueNameThatReadsBack) {
  std::set<std::string> names;
  for (int i = 0; i < kCodes; ++i) {
    const RefusalCode code = static_cast<RefusalCode>(i);
    const std::string name(RefusalCodeName(code));
    EXPECT_NE(name, "unknown") << i;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(RefusalCodeFromName(name), code) << name;
  }
}

TEST(RefusalTest, NamesAreThoseOfTheSpecification) {
  for (const char* name :
       {"unknown_peer", "stale_incarnation", "quarantined", "contract_mismatch", "version_not_live",
        "unknown_version", "bad_spans", "stale_cache", "lag_exceeded", "mixed_versions",
        "digest_mismatch", "kernel_mismatch", "logprob_mismatch", "duplicate", "bad_ticket"}) {
    EXPECT_TRUE(RefusalCodeFromName(name).has_value()) << name;
  }
}

TEST(RefusalTest, UnknownNameIsNoCode) {
  EXPECT_EQ(RefusalCodeFromName("no_such_reason"), std::nullopt);
  EXPECT_EQ(RefusalCodeFromName("unknown"), std::nullopt);
  EXPECT_EQ(RefusalCodeFromName(""), std::nullopt);
}

TEST(RefusalTest, FormattingIsOneLineARefusalWithKeyWhenThereIsOne) {
  EXPECT_EQ(FormatRefusals({}), "");
  EXPECT_EQ(FormatRefusals({{RefusalCode::kContractMismatch, "sites.dense_mlp.program", "a"},
                            {RefusalCode::kShuttingDown, "", "b"}}),
            "contract_mismatch (sites.dense_mlp.program): a\nshutting_down: b");
}

}  // namespace
}  // namespace lockstep
