#include "trainer_client/trainer.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/probe_runner.h"
#include "policy/contract.h"
#include "policy/status_macros.h"
#include "trainer_client/bridge_link.h"
#include "trainer_client/publish_input.h"
#include "trainer_client/publisher.h"

namespace lockstep {
namespace {

int ThreadsOf(int asked) {
  const int most = asked > 0 ? asked : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(most, 1, kMaxTrainerThreads);
}

absl::StatusOr<Contract> ContractOf(const TrainerOptions& options) {
  ContractReading reading = ReadContract(options.contract_json);
  for (Refusal& refusal : CheckManifest(options.manifest)) {
    reading.refusals.push_back(std::move(refusal));
  }
  if (!reading.refusals.empty()) {
    return absl::FailedPreconditionError(FormatRefusals(reading.refusals));
  }
  return *std::move(reading.contract);
}

absl::StatusOr<RegisterTrainer> RegistrationOf(const TrainerOptions& options) {
  RegisterTrainer registration;
  registration.contract_json = options.contract_json;
  LOCKSTEP_ASSIGN_OR_RETURN(registration.evidence, transport::MakeEvidence());
  registration.manifest = options.manifest;
  registration.source_role = options.source_role;
  return registration;
}

PublisherOptions PublishingOf(const TrainerOptions& options, Contract contract) {
  PublisherOptions publishing;
  publishing.manifest = options.manifest;
  publishing.contract = std::move(contract);
  publishing.source_role = options.source_role;
  publishing.transports = options.transport.has_value()
                              ? std::vector<TransportKind>{*options.transport}
                              : transport::DefaultTransports();
  publishing.threads = ThreadsOf(options.threads);
  return publishing;
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(RegisterTrainer registration, PublisherOptions publishing, Manifest given)
      : manifest(std::move(given)),
        link(std::move(registration), [this](uint64_t arena) { publisher.DropArena(arena); }),
        publisher(std::move(publishing), link) {}

  // The session ends before the publisher, whose arenas it names; both after the publishing
  // thread.
  ~Impl() {
    publisher.Stop();
    link.Close();
  }

  const Manifest manifest;
  BridgeLink link;
  Publisher publisher;
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Connect(TrainerOptions options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Contract contract, ContractOf(options));
  LOCKSTEP_ASSIGN_OR_RETURN(RegisterTrainer registration, RegistrationOf(options));
  auto impl =
      std::make_unique<Impl>(std::move(registration), PublishingOf(options, std::move(contract)),
                             std::move(options.manifest));
  transport::SessionOptions session;
  session.bridge = std::move(options.bridge);
  session.role = PeerRole::kTrainer;
  session.name = std::move(options.name);
  LOCKSTEP_RETURN_IF_ERROR(impl->link.Open(std::move(session)));
  LOCKSTEP_RETURN_IF_ERROR(impl->publisher.Start());
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

std::future<absl::StatusOr<PublishOutcome>> Trainer::Publish(
    uint64_t version, absl::Span<const TensorBytesView> tensors, PublishOptions options) {
  PublishJob job;
  job.version = version;
  job.sources = MatchTensors(impl_->manifest, tensors);
  job.on_released = std::move(options.on_released);
  std::future<absl::StatusOr<PublishOutcome>> future = job.outcome.get_future();
  impl_->publisher.Add(std::move(job));
  return future;
}

std::future<absl::StatusOr<Decision>> Trainer::SubmitRescore(const std::string& rollout_id,
                                                             absl::Span<const float> logprobs) {
  return impl_->link.Rescore(rollout_id, logprobs);
}

uint64_t Trainer::epoch() const { return impl_->link.standing().epoch; }
std::string Trainer::contract_short() const { return impl_->link.standing().contract_short; }
TransportKind Trainer::transport() const { return impl_->publisher.transport(); }
std::vector<Refusal> Trainer::last_refusals() const { return impl_->link.last_refusals(); }

}  // namespace lockstep
