#include "policy/version_ledger.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "rapidcheck.h"

namespace lockstep {
namespace {

const Digest256 kLayout = Blake2b256("layout");

testing::AssertionResult Refused(const std::optional<Refusal>& got, RefusalCode code,
                                 absl::string_view text) {
  if (got.has_value() && got->code == code && absl::StrContains(got->message, text)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << (got.has_value() ? FormatRefusals({*got}) : "accepted");
}

#define EXPECT_ACCEPTED(expr)                                        \
  do {                                                               \
    const std::optional<Refusal> refusal = (expr);                   \
    EXPECT_FALSE(refusal.has_value()) << FormatRefusals({*refusal}); \
  } while (false)

// Versions 1..`newest`, all live, written under one epoch each.
VersionLedger LedgerAt(uint64_t newest) {
  VersionLedger ledger("default");
  for (uint64_t version = 1; version <= newest; ++version) {
    const uint64_t epoch = ledger.OpenEpoch();
    EXPECT_ACCEPTED(ledger.Offer(epoch, version, kLayout));
    EXPECT_ACCEPTED(ledger.Seal(epoch, version, Blake2b256(std::to_string(version))));
    EXPECT_ACCEPTED(ledger.Verify(version));
    EXPECT_ACCEPTED(ledger.MakeLive(version));
  }
  return ledger;
}

TEST(VersionLedgerTest, VersionWalksThroughItsStages) {
  VersionLedger ledger("default");
  const uint64_t epoch = ledger.OpenEpoch();
  EXPECT_ACCEPTED(ledger.Offer(epoch, 3, kLayout));
  EXPECT_EQ(ledger.newest_sealed(), std::nullopt);
  EXPECT_ACCEPTED(ledger.BeginTransfer(epoch, 3));
  EXPECT_ACCEPTED(ledger.Seal(epoch, 3, Blake2b256("3")));
  EXPECT_EQ(ledger.newest_sealed(), 3u);
  EXPECT_ACCEPTED(ledger.Verify(3));
  EXPECT_ACCEPTED(ledger.MakeLive(3));
  EXPECT_ACCEPTED(ledger.Retire(3));
  EXPECT_EQ(ledger.Find(3)->stage, VersionStage::kRetired);
}

TEST(VersionLedgerTest, StagesCannotBeSkippedOrTakenBack) {
  VersionLedger ledger("default");
  const uint64_t epoch = ledger.OpenEpoch();
  EXPECT_TRUE(Refused(ledger.Verify(1), RefusalCode::kUnknownVersion, "has no version 1"));
  EXPECT_ACCEPTED(ledger.Offer(epoch, 1, kLayout));
  EXPECT_TRUE(Refused(ledger.Verify(1), RefusalCode::kVersionConflict, "is offered"));
  EXPECT_TRUE(Refused(ledger.Retire(1), RefusalCode::kVersionConflict, "cannot become retired"));
  EXPECT_ACCEPTED(ledger.Seal(epoch, 1, Blake2b256("1")));
  EXPECT_TRUE(Refused(ledger.MakeLive(1), RefusalCode::kVersionConflict, "is sealed"));
  EXPECT_TRUE(Refused(ledger.Discard(1), RefusalCode::kVersionConflict, "cannot become discarded"));
  EXPECT_TRUE(Refused(ledger.BeginTransfer(epoch, 1), RefusalCode::kVersionConflict, "is sealed"));
  EXPECT_ACCEPTED(ledger.Retire(1));
  EXPECT_TRUE(Refused(ledger.MakeLive(1), RefusalCode::kVersionConflict, "is retired"));
}

TEST(VersionLedgerTest, VersionGoingBackwardsIsRefusedWithTheNextNumber) {
  VersionLedger ledger = LedgerAt(4);
  EXPECT_TRUE(Refused(ledger.Offer(ledger.newest_epoch(), 3, kLayout),
                      RefusalCode::kVersionBackwards,
                      "newest version of run 'default' is 4 (epoch 4); version 3 would go "
                      "backwards: publish 5 or later"));
  // Also for a trainer that started again from step 0.
  const uint64_t epoch = ledger.OpenEpoch();
  EXPECT_TRUE(
      Refused(ledger.Offer(epoch, 0, kLayout), RefusalCode::kVersionBackwards, "5 or later"));
  EXPECT_ACCEPTED(ledger.Offer(epoch, 100, kLayout));
}

TEST(VersionLedgerTest, OldEpochCannotOfferTransferOrSeal) {
  VersionLedger ledger("default");
  const uint64_t old_epoch = ledger.OpenEpoch();
  EXPECT_ACCEPTED(ledger.Offer(old_epoch, 1, kLayout));
  const uint64_t epoch = ledger.OpenEpoch();
  EXPECT_GT(epoch, old_epoch);
  EXPECT_EQ(ledger.Find(1)->stage, VersionStage::kDiscarded);
  EXPECT_TRUE(Refused(ledger.Offer(old_epoch, 2, kLayout), RefusalCode::kStaleEpoch, "took over"));
  EXPECT_TRUE(Refused(ledger.BeginTransfer(old_epoch, 1), RefusalCode::kStaleEpoch, "took over"));
  EXPECT_TRUE(
      Refused(ledger.Seal(old_epoch, 1, Blake2b256("1")), RefusalCode::kStaleEpoch, "took over"));
  // An unsealed number is not used up.
  EXPECT_ACCEPTED(ledger.Offer(epoch, 1, kLayout));
}

TEST(VersionLedgerTest, NobodyWritesBeforeTheFirstEpoch) {
  VersionLedger ledger("default");
  EXPECT_TRUE(Refused(ledger.Offer(0, 1, kLayout), RefusalCode::kStaleEpoch, "may not write"));
}

TEST(VersionLedgerTest, RepeatWithEqualContentIsIdempotent) {
  VersionLedger ledger = LedgerAt(2);
  const LedgerVersion before = *ledger.Find(2);
  EXPECT_ACCEPTED(ledger.Offer(2, 2, kLayout));
  EXPECT_ACCEPTED(ledger.Seal(2, 2, Blake2b256("2")));
  EXPECT_ACCEPTED(ledger.MakeLive(2));
  EXPECT_EQ(*ledger.Find(2), before);
}

TEST(VersionLedgerTest, OneNumberNeverMeansTwoContentsOrLayouts) {
  VersionLedger ledger = LedgerAt(2);
  EXPECT_TRUE(Refused(ledger.Seal(2, 2, Blake2b256("other")), RefusalCode::kVersionConflict,
                      "never means two contents"));
  EXPECT_TRUE(Refused(ledger.Seal(2, 1, Blake2b256("other")), RefusalCode::kVersionConflict,
                      "never means two contents"));
  EXPECT_TRUE(Refused(ledger.Offer(2, 2, Blake2b256("other")), RefusalCode::kVersionConflict,
                      "another layout"));
  EXPECT_EQ(*ledger.Find(2)->content, Blake2b256("2"));
}

TEST(VersionLedgerTest, NewerOfferDiscardsAnUnsealedOne) {
  VersionLedger ledger = LedgerAt(1);
  EXPECT_ACCEPTED(ledger.Offer(1, 2, kLayout));
  EXPECT_ACCEPTED(ledger.Offer(1, 3, kLayout));
  EXPECT_EQ(ledger.Find(2)->stage, VersionStage::kDiscarded);
  EXPECT_TRUE(
      Refused(ledger.Seal(1, 2, Blake2b256("2")), RefusalCode::kVersionConflict, "is discarded"));
}

TEST(VersionLedgerTest, RollbackIsANewVersion) {
  VersionLedger ledger = LedgerAt(4);
  uint64_t version = 0;
  EXPECT_ACCEPTED(ledger.RollBack(3, Blake2b256("3 under the key of 5"), version));
  EXPECT_EQ(version, 5u);
  EXPECT_EQ(ledger.newest_sealed(), 5u);
  EXPECT_EQ(ledger.Find(5)->rollback_of, 3u);
  EXPECT_EQ(ledger.Find(5)->stage, VersionStage::kSealed);
  EXPECT_TRUE(Refused(ledger.Offer(4, 4, kLayout), RefusalCode::kVersionBackwards, "6 or later"));
}

TEST(VersionLedgerTest, RollbackNeedsASealedSource) {
  VersionLedger ledger = LedgerAt(1);
  EXPECT_ACCEPTED(ledger.Offer(1, 2, kLayout));
  uint64_t version = 77;
  EXPECT_TRUE(
      Refused(ledger.RollBack(2, kLayout, version), RefusalCode::kUnknownVersion, "never sealed"));
  EXPECT_TRUE(
      Refused(ledger.RollBack(9, kLayout, version), RefusalCode::kUnknownVersion, "never sealed"));
  EXPECT_EQ(version, 77u);
  EXPECT_EQ(ledger.Find(2)->stage, VersionStage::kOffered);
}

TEST(VersionLedgerTest, RestoredLedgerGoesOnWhereItWas) {
  VersionLedger before = LedgerAt(4);
  VersionLedger after("default");
  for (const auto& [number, version] : before.versions()) after.Restore(version);
  after.RestoreEpoch(9);
  EXPECT_EQ(after.versions(), before.versions());
  EXPECT_EQ(after.newest_sealed(), 4u);
  EXPECT_EQ(after.OpenEpoch(), 10u);
}

TEST(VersionLedgerTest, EndedVersionsAreForgottenWithinTheLimitAndStayUsedUp) {
  VersionLedger ledger("default");
  const uint64_t epoch = ledger.OpenEpoch();
  const uint64_t count = kMaxLedgerVersions + 10;
  for (uint64_t version = 1; version <= count; ++version) {
    EXPECT_ACCEPTED(ledger.Offer(epoch, version, kLayout));
    EXPECT_ACCEPTED(ledger.Seal(epoch, version, kLayout));
    EXPECT_ACCEPTED(ledger.Retire(version));
  }
  EXPECT_EQ(ledger.versions().size(), kMaxLedgerVersions);
  EXPECT_EQ(ledger.Find(1), nullptr);
  EXPECT_TRUE(
      Refused(ledger.Offer(epoch, 1, kLayout), RefusalCode::kVersionBackwards, "backwards"));
}

TEST(VersionLedgerTest, StageNamesRoundTrip) {
  for (const char* name :
       {"offered", "transferring", "sealed", "verified", "live", "retired", "discarded"}) {
    const auto stage = VersionStageFromName(name);
    ASSERT_TRUE(stage.has_value()) << name;
    EXPECT_EQ(VersionStageName(*stage), name);
  }
  EXPECT_EQ(VersionStageFromName("unknown"), std::nullopt);
}

TEST(VersionLedgerProperty, AnyCallsKeepNumbersGrowingAndContentsFixed) {
  EXPECT_TRUE(rc::check("I4 and I5 under random calls", [] {
    VersionLedger ledger("default");
    std::map<uint64_t, Digest256> contents;
    uint64_t newest = 0;
    for (int step = 0; step < 60; ++step) {
      const auto epoch = *rc::gen::inRange<uint64_t>(0, 6);
      const auto version = *rc::gen::inRange<uint64_t>(1, 9);
      const Digest256 digest = Blake2b256(std::to_string(*rc::gen::inRange(0, 2)));
      uint64_t rolled = 0;
      switch (*rc::gen::inRange(0, 9)) {
        case 0:
          ledger.OpenEpoch();
          break;
        case 1:
        case 2: {
          const bool accepted = !ledger.Offer(epoch, version, digest).has_value();
          if (accepted) RC_ASSERT(epoch == ledger.newest_epoch() && version >= newest);
          break;
        }
        case 3:
        case 4: {
          const bool accepted = !ledger.Seal(epoch, version, digest).has_value();
          if (accepted) RC_ASSERT(epoch == ledger.newest_epoch());
          break;
        }
        case 5:
          (void)ledger.Verify(version);
          break;
        case 6:
          (void)ledger.MakeLive(version);
          break;
        case 7:
          (void)ledger.Retire(version);
          break;
        default:
          if (!ledger.RollBack(version, digest, rolled)) RC_ASSERT(rolled > newest);
      }
      RC_ASSERT(ledger.newest_sealed().value_or(0) >= newest);
      newest = ledger.newest_sealed().value_or(0);
      for (const auto& [number, known] : ledger.versions()) {
        if (!known.content.has_value()) continue;
        const auto [at, added] = contents.emplace(number, *known.content);
        RC_ASSERT(at->second == *known.content);
        RC_ASSERT(number <= newest);
      }
    }
  }));
}

}  // namespace
}  // namespace lockstep
