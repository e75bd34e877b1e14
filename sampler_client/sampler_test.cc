#include "sampler_client/sampler.h"

#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "policy/contract.h"
#include "sampler_client/arena_holds.h"
#include "sampler_client/rollout_content.h"

namespace lockstep {
namespace {

SamplerOptions GoodOptions() {
  Contract contract;
  contract.family = "none";
  SamplerOptions options;
  options.bridge.address = "ipc:///nonexistent/lockstep.sock";
  options.contract_json = ContractToJson(contract);
  options.on_flush_cache = [](uint64_t) { return "flushed"; };
  return options;
}

TEST(SamplerTest, BadOptionsAreNamedBeforeABridgeIsLookedFor) {
  EXPECT_TRUE(absl::IsUnavailable(Sampler::Connect(GoodOptions()).status()));
  const auto refused = [](const SamplerOptions& options, absl::string_view words) {
    const absl::Status status = Sampler::Connect(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
  };
  SamplerOptions options = GoodOptions();
  options.on_flush_cache = nullptr;
  refused(options, "on_flush_cache");
  options = GoodOptions();
  options.transports.clear();
  refused(options, "no transport");
  options = GoodOptions();
  options.contract_json = "{";
  refused(options, "bad_config");
  options = GoodOptions();
  options.manifest = Manifest{{{"b", Dtype::kF32, {1}}, {"a", Dtype::kF32, {1}}}, {}};
  refused(options, "out of order");
}

TEST(ArenaHoldsTest, OnlyTheLastHoldGivesAnArenaBack) {
  std::vector<uint64_t> released;
  ArenaHolds holds([&](uint64_t arena) { released.push_back(arena); });
  holds.Hold(7);
  holds.Hold(7);
  holds.Hold(8);
  holds.Drop(7);
  EXPECT_TRUE(released.empty());
  holds.Drop(8);
  holds.Drop(7);
  EXPECT_EQ(released, (std::vector<uint64_t>{8, 7}));
  // Neither what nobody holds, nor memory that is no arena.
  holds.Drop(7);
  holds.Hold(0);
  holds.Drop(0);
  EXPECT_EQ(released.size(), 2u);
}

TEST(RolloutContentTest, IsTheDigestOfTheDocumentedBytesAndOfNothingElse) {
  Rollout rollout;
  rollout.sampler = "s1";
  rollout.spans = {{3, 0, 1}};
  rollout.tokens = {-2};
  rollout.sampler_logprobs = {-1.5f};
  const std::string bytes = std::string("lockstep rollout content@v1\n") +                 //
                            std::string("\2\0\0\0s1", 6) +                                 //
                            std::string("\1\0\0\0\0\0\0\0", 8) +                           //
                            std::string("\3\0\0\0\0\0\0\0", 8) + std::string(8, '\0') +    //
                            std::string("\1\0\0\0\0\0\0\0", 8) +                           //
                            std::string("\1\0\0\0\0\0\0\0", 8) + "\xFE" +                  //
                            std::string(7, '\xFF') + std::string("\1\0\0\0\0\0\0\0", 8) +  //
                            std::string("\0\0\xC0\xBF", 4);
  const Digest256 content = RolloutContent(rollout);
  EXPECT_EQ(ToHex(content), ToHex(Blake2b256(bytes)));
  rollout.id = "another";
  rollout.cache_epoch = 9;
  EXPECT_EQ(RolloutContent(rollout), content);
  rollout.sampler_logprobs[0] = -1.4999999f;
  EXPECT_NE(RolloutContent(rollout), content);
}

}  // namespace
}  // namespace lockstep
