#include "trainer_client/publisher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/probe_runner.h"
#include "bridge/transport/shm.h"
#include "bridge/transport/tcp.h"
#include "policy/probe_plan.h"
#include "policy/status_macros.h"
#include "trainer_client/version_filler.h"

namespace lockstep {
namespace {

using transport::ArenaWriter;

constexpr absl::Duration kDescriptorTimeout = absl::Seconds(10);
// How often a transfer is tried that broke while the bridge stayed.
constexpr int kMaxTransferAttempts = 3;

absl::Status BytesGone(uint64_t version) {
  return absl::UnavailableError(
      absl::StrCat("version ", version,
                   ": the bridge was lost before the version was sealed, and its tensors were "
                   "released and are no longer held; publish again"));
}

bool MayPassByItself(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsDataLoss(status);
}

bool ShuttingDown(const std::vector<Refusal>& refusals) {
  return !refusals.empty() && refusals.front().code == RefusalCode::kShuttingDown;
}

template <typename Reply>
absl::StatusOr<Reply> Expect(absl::StatusOr<Message> answer, absl::string_view question) {
  if (!answer.ok()) return answer.status();
  if (Reply* reply = std::get_if<Reply>(&*answer)) return std::move(*reply);
  return absl::InternalError(
      absl::StrCat("the bridge answered ", question, " with another kind of message"));
}

// Withdraws the feed before it dies.
class FeedOfLink {
 public:
  explicit FeedOfLink(BridgeLink& link) : link_(link) { link_.SetFeed(&feed_); }
  ~FeedOfLink() { link_.SetFeed(nullptr); }
  transport::RoundFeed& feed() { return feed_; }

 private:
  BridgeLink& link_;
  transport::RoundFeed feed_;
};

}  // namespace

void Publisher::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  link_.Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status Publisher::Start() {
  LOCKSTEP_RETURN_IF_ERROR(ConnectWriter(link_.standing().bridges));
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Publisher::Add(PublishJob job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void Publisher::DropArena(uint64_t arena_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  drops_.push_back(arena_id);
  changed_.notify_all();
}

TransportKind Publisher::transport() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return transport_;
}

void Publisher::Run() {
  for (;;) {
    std::optional<PublishJob> job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !jobs_.empty() || !drops_.empty(); });
      if (stopped_) break;
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
    }
    TakeDrops();
    if (job.has_value()) Finish(*job, Publish(*job));
  }
  std::deque<PublishJob> left;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(jobs_);
  }
  for (PublishJob& job : left) {
    Finish(job, absl::CancelledError("the trainer was closed before the version was published"));
  }
}

void Publisher::Finish(PublishJob& job, absl::StatusOr<PublishOutcome> outcome) {
  if (job.on_released) std::exchange(job.on_released, nullptr)();
  job.outcome.set_value(std::move(outcome));
}

// Unmapping a large arena takes long, so it is done here and not on the session's thread.
void Publisher::TakeDrops() {
  std::vector<uint64_t> drops;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    drops.swap(drops_);
  }
  for (const uint64_t arena : drops) writer_->Drop(arena);
}

absl::Status Publisher::ConnectWriter(uint64_t bridges) {
  if (writer_ != nullptr && writer_bridges_ == bridges) return absl::OkStatus();
  const Welcome welcome = link_.session().welcome();
  const transport::TransportFacts facts{
      .same_host = link_.session().address().kind == transport::Address::Kind::kIpc,
      .fd_socket = !welcome.fd_socket_path.empty(),
      .bulk_port = !welcome.bulk_address.empty()};
  LOCKSTEP_ASSIGN_OR_RETURN(const TransportKind kind,
                            transport::ChooseTransport(options_.transports, facts));
  const Incarnation& incarnation = link_.session().incarnation();
  if (kind == TransportKind::kShm) {
    auto writer = std::make_unique<transport::ShmWriter>(welcome.fd_socket_path, incarnation,
                                                         kDescriptorTimeout);
    LOCKSTEP_RETURN_IF_ERROR(writer->Open());
    writer_ = std::move(writer);
  } else {
    writer_ = std::make_unique<transport::TcpWriter>(
        transport::BulkEndpoint{welcome.bulk_address, welcome.bulk_key, incarnation},
        transport::BulkOptions());
  }
  writer_bridges_ = bridges;
  const std::lock_guard<std::mutex> lock(mutex_);
  transport_ = kind;
  return absl::OkStatus();
}

absl::StatusOr<PublishOutcome> Publisher::Publish(PublishJob& job) {
  if (!job.sources.ok()) return job.sources.status();
  LOCKSTEP_RETURN_IF_ERROR(CheckTiedTensors(options_.manifest, *job.sources));
  Material material;
  material.sources = *std::move(job.sources);
  for (int attempts = 0;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Standing standing, link_.WaitRegistered());
    absl::StatusOr<PublishOutcome> outcome = Attempt(standing, job, material);
    if (outcome.ok() || absl::IsCancelled(outcome.status())) return outcome;
    const bool refused = absl::IsFailedPrecondition(outcome.status());
    if (refused && ShuttingDown(link_.last_refusals())) {
      LOCKSTEP_RETURN_IF_ERROR(link_.WaitLost(standing));
    } else if (!link_.LostSince(standing)) {
      if (!MayPassByItself(outcome.status()) || ++attempts == kMaxTransferAttempts) return outcome;
    }
    const bool nothing_left = material.sources.empty() && !material.key.has_value();
    if (nothing_left) return BytesGone(job.version);
  }
}

absl::StatusOr<PublishOutcome> Publisher::Attempt(const Standing& standing, PublishJob& job,
                                                  Material& material) {
  LOCKSTEP_RETURN_IF_ERROR(ConnectWriter(standing.bridges));
  Offer offer;
  offer.epoch = standing.epoch;
  offer.version = job.version;
  offer.source_role = options_.source_role;
  offer.layout_digest = layout_digest_;
  offer.transport = transport();
  LOCKSTEP_ASSIGN_OR_RETURN(const OfferAccepted accepted,
                            Expect<OfferAccepted>(link_.Ask(std::move(offer)), "an Offer"));
  const bool prepared = accepted.verify_only && material.key == accepted.key &&
                        material.probe_seed == accepted.probe_seed;
  if (!prepared) LOCKSTEP_RETURN_IF_ERROR(Prepare(accepted, job, material));
  material.seal.arena_id = accepted.arena_id;
  return Expect<PublishOutcome>(link_.Ask(material.seal), "a SealVersion");
}

absl::Status Publisher::Prepare(const OfferAccepted& accepted, PublishJob& job,
                                Material& material) {
  material.key.reset();
  if (material.sources.empty()) return BytesGone(job.version);
  FeedOfLink feed(link_);
  // Arenas that the bridge gave up make room for the next one.
  TakeDrops();
  ArenaWriter* const writer = accepted.verify_only ? nullptr : writer_.get();
  if (writer != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(
        writer->Begin({accepted.arena_id, layout_.total_bytes, accepted.reuse_arena}));
  }
  const bool tells_marks = writer != nullptr && transport() == TransportKind::kShm;
  const std::string run = link_.session().welcome().run;
  LOCKSTEP_ASSIGN_OR_RETURN(FilledVersion filled,
                            FillVersion({.run = run,
                                         .version = job.version,
                                         .key = accepted.key,
                                         .manifest = options_.manifest,
                                         .layout = layout_,
                                         .sources = material.sources,
                                         .threads = options_.threads},
                                        writer, feed.feed(), [&](uint64_t bytes_ready) {
                                          // Over TCP the bridge sees for itself how far the upload
                                          // is.
                                          if (tells_marks)
                                            link_.Post(TransferProgress{job.version, bytes_ready});
                                        }));
  material.seal.version = job.version;
  material.seal.digest = std::move(filled.digest);
  material.seal.nan_elements = filled.nan_elements;
  LOCKSTEP_RETURN_IF_ERROR(Probe(accepted, material));
  material.key = accepted.key;
  material.probe_seed = accepted.probe_seed;
  Release(job, material, writer != nullptr);
  return absl::OkStatus();
}

absl::Status Publisher::Probe(const OfferAccepted& accepted, Material& material) {
  const ProbePlan plan = DeriveProbePlan(options_.manifest, options_.contract, accepted.probe_seed);
  LOCKSTEP_ASSIGN_OR_RETURN(
      material.seal.components,
      transport::RunProbe(
          plan, [&](size_t tensor) { return material.sources[tensor]; }, options_.threads));
  return absl::OkStatus();
}

void Publisher::Release(PublishJob& job, Material& material, bool moved) {
  material.copy = moved ? writer_->KeepMapped() : nullptr;
  material.sources.clear();
  if (material.copy != nullptr) {
    const absl::Span<const uint8_t> arena = writer_->Mapped();
    for (size_t i = 0; i < layout_.offsets.size(); ++i) {
      material.sources.push_back(arena.subspan(layout_.offsets[i], layout_.sizes[i]));
    }
  }
  if (job.on_released) std::exchange(job.on_released, nullptr)();
}

}  // namespace lockstep
