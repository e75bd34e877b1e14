#include "bridge/ledger/ledger.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::ledger {
namespace {

// A fresh state folder per test.
std::string StateDir() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = absl::StrCat(testing::TempDir(), "/ledger_", info->name());
  std::filesystem::remove_all(path);
  return path;
}

std::unique_ptr<Ledger> MustOpen(const LedgerOptions& options) {
  absl::StatusOr<std::unique_ptr<Ledger>> ledger = OpenLedger(options);
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  return ledger.ok() ? *std::move(ledger) : nullptr;
}

Digest256 Filled(uint8_t value) {
  Digest256 digest;
  digest.fill(value);
  return digest;
}

core::DecisionRecord Decided(const std::string& id, DecisionKind kind) {
  core::DecisionRecord record;
  record.decision.rollout_id = id;
  record.decision.content = Filled(7);
  record.decision.kind = kind;
  record.decision.sampler = "s1";
  record.decision.spans = {{3, 0, 5}};
  if (kind == DecisionKind::kRefuse) {
    record.decision.reasons = {{RefusalCode::kLogprobMismatch, "token 4", "bits differ"},
                               {RefusalCode::kDuplicate, "", "seen before"}};
    record.decision.compared = true;
    record.decision.k3 = 7.1e-15;
    record.decision.mismatched_tokens = 1;
    record.decision.mismatches = {{4, 0xbf800000, 0xbf800001}};
  }
  return record;
}

Rollout SomeRollout(const std::string& id) {
  Rollout rollout;
  rollout.id = id;
  rollout.content = Filled(7);
  rollout.sampler = "s1";
  rollout.spans = {{3, 0, 2}};
  rollout.tokens = {5, 6};
  rollout.sampler_logprobs = {-0.5f, -0.25f};
  return rollout;
}

core::EpochRecord SomeEpoch(uint64_t epoch) {
  core::EpochRecord record;
  record.epoch = epoch;
  record.trainer = "trainer";
  record.incarnation.fill(static_cast<uint8_t>(epoch));
  record.source_role = SourceRole::kActor;
  record.contract_json = R"({"family":"none"})";
  record.evidence.tables["silu/ieee@v1"] = Filled(9);
  record.manifest.tensors = {{"a", Dtype::kBF16, {4, 2}}, {"b", Dtype::kF32, {}}};
  return record;
}

core::VersionRecord SomeVersion(uint64_t version, uint64_t epoch) {
  core::VersionRecord record;
  record.version = version;
  record.epoch = epoch;
  record.state = "sealed";
  record.key = Filled(1);
  record.probe_seed = ~uint64_t{0};
  record.digest.manifest_root = Filled(2);
  record.digest.tensor_roots = {Filled(3), Filled(4)};
  record.components = {{"layers.0.mlp.swiglu", Filled(5)}};
  record.bytes = 20;
  record.nan_elements = 3;
  record.zero_change = true;
  record.sealed_wall_ms = 1'700'000'000'000;
  return record;
}

TEST(LedgerTest, EverythingAppendedIsRecoveredAfterReopening) {
  const LedgerOptions options{StateDir(), "default"};
  core::VersionRecord rolled_back = SomeVersion(4, 2);
  rolled_back.rollback_of = 3;
  rolled_back.on_disk = true;
  {
    auto ledger = MustOpen(options);
    core::LiveRecord live{"s1", {}, 3, 8, "flushed 12 blocks", 18, 18};
    core::SamplerRecord sampler{
        "s3", {},   "refused", {{RefusalCode::kContractMismatch, "sites.dense_mlp", "differs"}},
        "{}", "shm"};
    core::DecisionRecord pending = Decided("p", DecisionKind::kPending);
    pending.rollout = SomeRollout("p");
    const std::vector<core::LedgerRecord> records = {
        SomeEpoch(1),
        SomeEpoch(2),
        SomeVersion(3, 2),
        rolled_back,
        live,
        sampler,
        pending,
        Decided("a", DecisionKind::kAdmit),
        Decided("r", DecisionKind::kRefuse),
        core::RefusalRecord{RefusalCode::kStaleEpoch},
        core::RefusalRecord{RefusalCode::kStaleEpoch},
        core::EventRecord{{1, 2, "seal", "version 3", "sealed"}}};
    ASSERT_TRUE(ledger->Append(records).ok());
  }
  auto ledger = MustOpen(options);
  absl::StatusOr<core::RecoveredState> state = ledger->Recover();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->epochs.size(), 2u);
  EXPECT_EQ(state->epochs[1].manifest, SomeEpoch(2).manifest);
  EXPECT_EQ(state->epochs[1].evidence, SomeEpoch(2).evidence);
  EXPECT_EQ(state->epochs[1].incarnation, SomeEpoch(2).incarnation);
  ASSERT_EQ(state->versions.size(), 2u);
  EXPECT_EQ(state->versions[0].digest, SomeVersion(3, 2).digest);
  EXPECT_EQ(state->versions[0].components, SomeVersion(3, 2).components);
  EXPECT_EQ(state->versions[0].probe_seed, ~uint64_t{0});
  EXPECT_EQ(state->versions[0].nan_elements, 3u);
  EXPECT_TRUE(state->versions[0].zero_change);
  EXPECT_FALSE(state->versions[0].on_disk);
  EXPECT_FALSE(state->versions[0].rollback_of.has_value());
  EXPECT_EQ(state->versions[1].rollback_of, 3u);
  EXPECT_TRUE(state->versions[1].on_disk);
  ASSERT_EQ(state->samplers.size(), 1u);
  EXPECT_EQ(state->samplers[0].reasons[0].key, "sites.dense_mlp");
  ASSERT_EQ(state->live_history.size(), 1u);
  EXPECT_EQ(state->live_history[0].flush_receipt, "flushed 12 blocks");
  ASSERT_EQ(state->pending.size(), 1u);
  EXPECT_EQ(state->pending[0].rollout.sampler_logprobs, SomeRollout("p").sampler_logprobs);
  EXPECT_EQ(state->rollouts_admitted, 1u);
  ASSERT_EQ(state->rollouts_refused.size(), 1u);
  EXPECT_EQ(state->rollouts_refused[0].reason, "logprob_mismatch");
  ASSERT_EQ(state->refusals.size(), 1u);
  EXPECT_EQ(state->refusals[0].count, 2u);
  EXPECT_EQ(state->last_event_seq, 1u);
}

TEST(LedgerTest, ADecisionIsFoundByItsIdInFull) {
  auto ledger = MustOpen({StateDir(), "default"});
  const core::DecisionRecord refused = Decided("r", DecisionKind::kRefuse);
  ASSERT_TRUE(ledger->Append({refused}).ok());
  absl::StatusOr<std::optional<Decision>> found = ledger->FindDecision("r");
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ(**found, refused.decision);
  EXPECT_FALSE(ledger->FindDecision("other")->has_value());
}

TEST(LedgerTest, APendingRolloutIsCountedOnceWhenDecided) {
  const LedgerOptions options{StateDir(), "default"};
  auto ledger = MustOpen(options);
  core::DecisionRecord pending = Decided("p", DecisionKind::kPending);
  pending.rollout = SomeRollout("p");
  ASSERT_TRUE(ledger->Append({pending}).ok());
  EXPECT_EQ(ledger->Recover()->rollouts_admitted, 0u);
  ASSERT_TRUE(ledger->Append({Decided("p", DecisionKind::kAdmit)}).ok());
  absl::StatusOr<core::RecoveredState> state = ledger->Recover();
  EXPECT_EQ(state->rollouts_admitted, 1u);
  EXPECT_TRUE(state->pending.empty());
  EXPECT_EQ((*ledger->FindDecision("p"))->kind, DecisionKind::kAdmit);
}

TEST(LedgerTest, TicketKeyStaysAndBootGrows) {
  const LedgerOptions options{StateDir(), "default"};
  Digest256 key;
  {
    auto ledger = MustOpen(options);
    key = ledger->ticket_key();
    EXPECT_EQ(ledger->boot(), 1u);
  }
  auto ledger = MustOpen(options);
  EXPECT_EQ(ledger->ticket_key(), key);
  EXPECT_EQ(ledger->boot(), 2u);
}

TEST(LedgerTest, ASecondBridgeOnTheSameFolderIsRefused) {
  const LedgerOptions options{StateDir(), "default"};
  auto first = MustOpen(options);
  const auto second = OpenLedger(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
}

TEST(LedgerTest, AFolderOfAnotherRunIsRefused) {
  const std::string dir = StateDir();
  MustOpen({dir, "one"});
  const auto other = OpenLedger({dir, "two"});
  ASSERT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.status().message().find("'one'"), std::string::npos) << other.status();
}

TEST(LedgerTest, TheStateFolderIsForItsOwnerAlone) {
  const std::string dir = StateDir();
  auto ledger = MustOpen({dir, "default"});
  struct stat info;
  ASSERT_EQ(stat(dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(LedgerTest, AFullDiskFailsTheBatchAndLeavesTheOneBefore) {
  LedgerOptions options{StateDir(), "default"};
  options.max_bytes = 256 * 1024;
  auto ledger = MustOpen(options);
  ASSERT_TRUE(ledger->Append({Decided("first", DecisionKind::kAdmit)}).ok());
  absl::Status status;
  int batches = 0;
  while (status.ok() && batches < 1000) {
    std::vector<core::LedgerRecord> batch;
    for (int i = 0; i < 100; ++i) {
      batch.push_back(Decided(absl::StrCat("d", batches, "_", i), DecisionKind::kRefuse));
    }
    status = ledger->Append(batch);
    if (status.ok()) ++batches;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(ledger->FindDecision("first")->has_value());
  EXPECT_FALSE(ledger->FindDecision(absl::StrCat("d", batches, "_0"))->has_value())
      << "a failed batch left a part of itself";
}

TEST(LedgerTest, ADamagedFileIsRefusedWithWhatToDo) {
  const std::string dir = StateDir();
  MustOpen({dir, "default"});
  std::filesystem::remove(dir + "/ledger.sqlite-wal");
  FILE* file = fopen((dir + "/ledger.sqlite").c_str(), "r+");
  ASSERT_NE(file, nullptr);
  for (int i = 0; i < 64; ++i) fputs("garbage.", file);
  fclose(file);
  const auto ledger = OpenLedger({dir, "default"});
  EXPECT_EQ(ledger.status().code(), absl::StatusCode::kDataLoss) << ledger.status();
}

TEST(LedgerTest, EventsAreReadInPagesAfterANumber) {
  auto ledger = MustOpen({StateDir(), "default"});
  std::vector<core::LedgerRecord> records;
  for (uint64_t seq = 1; seq <= 10; ++seq) {
    records.push_back(core::EventRecord{{seq, 100 + seq, "live", "version 1", "text"}});
  }
  ASSERT_TRUE(ledger->Append(records).ok());
  absl::StatusOr<EventsReply> page = ledger->Events(4, 3);
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->events.size(), 3u);
  EXPECT_EQ(page->events[0].seq, 5u);
  EXPECT_EQ(page->last_seq, 10u);
  EXPECT_TRUE(ledger->Events(~uint64_t{0}, 3)->events.empty());
}

// Kills a child at an arbitrary moment of its appending and reads what it acknowledged.
TEST(LedgerTest, WhatAppendAcknowledgedSurvivesKillMinusNine) {
  const LedgerOptions options{StateDir(), "default"};
  int acknowledged[2];
  ASSERT_EQ(pipe(acknowledged), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto ledger = OpenLedger(options);
    for (uint32_t i = 0; ledger.ok(); ++i) {
      if (!(*ledger)->Append({Decided(absl::StrCat(i), DecisionKind::kAdmit)}).ok()) break;
      if (write(acknowledged[1], &i, sizeof i) != sizeof i) break;
    }
    _exit(1);
  }
  close(acknowledged[1]);
  uint32_t last = 0;
  while (last < 200 && read(acknowledged[0], &last, sizeof last) == sizeof last) {
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (uint32_t value; read(acknowledged[0], &value, sizeof value) == sizeof value;) last = value;
  close(acknowledged[0]);
  ASSERT_GE(last, 200u);
  auto ledger = MustOpen(options);
  for (uint32_t i = 0; i <= last; ++i) {
    ASSERT_TRUE(ledger->FindDecision(absl::StrCat(i))->has_value()) << i << " of " << last;
  }
}

}  // namespace
}  // namespace lockstep::ledger
