#include "bridge/loop/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "bridge/transport/version_digest.h"
#include "policy/manifest.h"

namespace lockstep::loop {

core::DigestDone Digest(const std::string& run, const core::DigestWork& work,
                        const SharedArena& arena, int threads) {
  core::DigestDone done{work.work_id, {}};
  if (arena == nullptr) return done;
  absl::StatusOr<VersionDigest> digest =
      transport::DigestArena(run, work.version, work.key, *work.manifest, arena->bytes(), threads);
  // An empty digest equals nobody's, as it must for bytes that cannot be digested.
  if (digest.ok()) done.digest = *std::move(digest);
  return done;
}

core::CompareDone Compare(const core::CompareWork& work, const SharedArena& a,
                          const SharedArena& b) {
  core::CompareDone done{work.work_id, false};
  if (a == nullptr || b == nullptr) return done;
  const ArenaLayout layout = ComputeArenaLayout(*work.manifest);
  if (a->bytes().size() < layout.total_bytes || b->bytes().size() < layout.total_bytes) return done;
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    const uint64_t at = layout.offsets[i];
    if (layout.sizes[i] == 0) continue;
    if (std::memcmp(a->bytes().data() + at, b->bytes().data() + at, layout.sizes[i]) != 0) {
      return done;
    }
  }
  done.equal = true;
  return done;
}

core::SpoolDone WriteSpool(const Spool& spool, const core::SpoolWork& work,
                           const SharedArena& arena) {
  if (arena == nullptr) return {work.work_id, "the arena is gone"};
  const absl::Status status = spool.Write(work.version, arena->bytes());
  return {work.work_id, std::string(status.message())};
}

core::SpoolLoaded LoadSpool(const Spool& spool, const core::SpoolLoad& work,
                            const SharedArena& arena) {
  if (arena == nullptr) return {work.version, work.arena_id, "the arena is gone"};
  const absl::Status status = spool.Read(work.version, arena->writable_bytes());
  return {work.version, work.arena_id, std::string(status.message())};
}

absl::StatusOr<std::unique_ptr<Mailbox>> Mailbox::Create() {
  transport::UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  return std::unique_ptr<Mailbox>(new Mailbox(std::move(wake)));
}

void Mailbox::Put(core::InputBody body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bodies_.push_back(std::move(body));
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is woken anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

std::vector<core::InputBody> Mailbox::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &wakes, sizeof(wakes));
  return std::exchange(bodies_, {});
}

Worker::Worker(Mailbox& mailbox) : mailbox_(mailbox), thread_([this] { Run(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Worker::Do(Job job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Worker::Run() {
  for (;;) {
    Job job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    std::optional<core::InputBody> body = job();
    job = nullptr;  // lets go of the arena before the loop hears of the end
    if (body.has_value()) mailbox_.Put(*std::move(body));
  }
}

}  // namespace lockstep::loop
