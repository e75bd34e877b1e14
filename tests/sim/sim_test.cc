// The core under random orders, duplicates, broken connections, kills and bridge crashes:
// the invariants hold after every step, and once faults stop everyone converges (I11).
// LOCKSTEP_SIM_SEED runs one seed, LOCKSTEP_SIM_SEEDS that many.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "tests/sim/sim_world.h"

namespace lockstep::core {
namespace {

constexpr uint64_t kFirstSeed = 20240611;
constexpr uint64_t kSeeds = 300;
constexpr int kEvents = 1'500;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// What the seeds together must have been through, or the simulation shows nothing.
constexpr const char* kExpectedEvents[] = {"offer",    "seal",    "verify", "live",  "admit",
                                           "refuse",   "discard", "retire", "abort", "gone",
                                           "rollback", "release", "alarm",  "claim", "late"};
using Reached = std::map<std::string, uint64_t>;

// True when the seed went well.
bool RunSeed(uint64_t seed, Reached& reached) {
  SimWorld world(seed);
  world.RunChaos(kEvents);
  EXPECT_EQ(world.breach(), "") << "in chaos, seed " << seed;
  if (!world.breach().empty()) return false;
  world.Converge();
  EXPECT_EQ(world.breach(), "") << "while converging, seed " << seed;
  bool converged = world.breach().empty();
  for (ModelSampler* sampler : world.AliveSamplers()) {
    const SamplerStatus status = world.StatusOf(sampler->name);
    const bool there = sampler->live_version == world.last_version() &&
                       status.live_version == world.last_version() && status.state == "live";
    EXPECT_TRUE(there) << "I11, seed " << seed << ": sampler " << sampler->name << " serves "
                       << sampler->live_version.value_or(0) << " and is " << status.state << " ("
                       << status.reason << "), the newest is " << world.last_version();
    converged = converged && there;
  }
  for (const char* kind : kExpectedEvents) reached[kind] += world.Events(kind);
  for (const LedgerRecord& record : world.ledger) {
    if (const DecisionRecord* decision = std::get_if<DecisionRecord>(&record)) {
      for (const Refusal& reason : decision->decision.reasons) {
        ++reached[std::string(RefusalCodeName(reason.code))];
      }
    }
  }
  return converged;
}

TEST(SimTest, InvariantsHoldUnderFaultsAndEveryoneConverges) {
  const uint64_t first = FromEnvironment("LOCKSTEP_SIM_SEED", kFirstSeed);
  const uint64_t count = FromEnvironment("LOCKSTEP_SIM_SEEDS",
                                         std::getenv("LOCKSTEP_SIM_SEED") != nullptr ? 1 : kSeeds);
  std::cout << "seeds " << first << " to " << first + count - 1 << "\n";
  Reached reached;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (!RunSeed(seed, reached)) return;
  }
  if (count < kSeeds) return;
  for (const char* kind : kExpectedEvents) EXPECT_GT(reached[kind], 0u) << kind;
}

TEST(SimTest, OneSeedGivesOneRun) {
  SimWorld a(7);
  SimWorld b(7);
  a.RunChaos(500);
  b.RunChaos(500);
  ASSERT_EQ(a.ledger.size(), b.ledger.size());
  EXPECT_EQ(a.time.now_ms, b.time.now_ms);
}

}  // namespace
}  // namespace lockstep::core
