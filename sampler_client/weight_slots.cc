#include "sampler_client/weight_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {

const ServedVersion& WeightsGuard::operator*() const { return slots_->slots_[slot_].version; }

void WeightsGuard::Release() {
  if (slots_ != nullptr) std::exchange(slots_, nullptr)->Leave(slot_);
}

WeightSlots::WeightSlots(OnReleased on_released) : on_released_(std::move(on_released)) {}

WeightSlots::~WeightSlots() {
  DropStaged();
  Deactivate();
  std::unique_lock<std::mutex> lock(mutex_);
  freed_.wait(lock, [this] { return free_[0] && free_[1]; });
}

// The reader counts itself, then looks again whether the slot is still the current one; the
// writer makes another slot current, then looks at the count. Both orders are sequentially
// consistent, so either the reader sees the change and leaves without having read, or the
// writer sees the reader.
WeightsGuard WeightSlots::Acquire() {
  for (;;) {
    const int slot = current_.load();
    if (slot == kNone) return WeightsGuard();
    slots_[slot].word.fetch_add(1);
    if (current_.load() == slot) return WeightsGuard(this, slot);
    Leave(slot);
  }
}

void WeightSlots::Leave(int slot) {
  const uint64_t before = slots_[slot].word.fetch_sub(1);
  if ((before & kRetired) != 0 && (before & kReaders) == 1) TryRelease(slot, before - 1);
}

void WeightSlots::Retire(int slot) {
  const uint64_t before = slots_[slot].word.fetch_or(kRetired);
  if ((before & kReaders) == 0) TryRelease(slot, before | kRetired);
}

void WeightSlots::TryRelease(int slot, uint64_t word) {
  // Fails when a reader that came too late has counted itself in passing: it releases then. The
  // generation keeps a thread that slept here from releasing a later version.
  if (slots_[slot].word.compare_exchange_strong(word, word & ~kRetired)) GiveBack(slot);
}

void WeightSlots::GiveBack(int slot) {
  ServedVersion gone = std::exchange(slots_[slot].version, ServedVersion());
  const uint64_t version = gone.version;
  const uint64_t arena_id = gone.arena_id;
  gone = ServedVersion();
  // Before the slot is free: nothing runs after the destructor has seen it free.
  if (on_released_) on_released_(version, arena_id);
  const std::lock_guard<std::mutex> lock(mutex_);
  free_[slot] = true;
  // Under the lock: the destructor may run as soon as it is dropped.
  freed_.notify_all();
}

absl::Status WeightSlots::Stage(ServedVersion version) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (staged_ != kNone) {
    return absl::FailedPreconditionError(absl::StrCat("version ", slots_[staged_].version.version,
                                                      " is staged; flip or drop it first"));
  }
  const int slot = free_[0] ? 0 : 1;
  if (!free_[slot]) {
    return absl::FailedPreconditionError(
        "the version before the one served still has readers; wait until they have left");
  }
  free_[slot] = false;
  staged_ = slot;
  slots_[slot].version = std::move(version);
  // Keeps the counts of readers that are just passing; wraps within its 31 bits.
  uint64_t word = slots_[slot].word.load();
  while (!slots_[slot].word.compare_exchange_weak(
      word, ((word & ~kReaders) + kGeneration) % kRetired + (word & kReaders))) {
  }
  return absl::OkStatus();
}

absl::Status WeightSlots::WaitUntilFree(absl::Time deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto any_free = [this] { return free_[0] || free_[1]; };
  for (absl::Duration left; (left = deadline - absl::Now()) > absl::ZeroDuration();) {
    // In slices, since an infinite deadline has no std::chrono twin.
    const auto slice = absl::ToChronoMilliseconds(std::min(left, absl::Minutes(1)));
    if (freed_.wait_for(lock, slice, any_free)) return absl::OkStatus();
  }
  if (any_free()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "both slots are in use: readers still hold the version before the one served; release "
      "their guards");
}

const ServedVersion* WeightSlots::staged() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return staged_ == kNone ? nullptr : &slots_[staged_].version;
}

void WeightSlots::DropStaged() {
  int slot = kNone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    slot = std::exchange(staged_, kNone);
  }
  if (slot != kNone) GiveBack(slot);
}

absl::Status WeightSlots::Flip() {
  int slot = kNone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    slot = std::exchange(staged_, kNone);
  }
  if (slot == kNone) return absl::FailedPreconditionError("no version is staged");
  const int old = current_.exchange(slot);
  if (old != kNone) Retire(old);
  return absl::OkStatus();
}

void WeightSlots::Deactivate() {
  const int old = current_.exchange(kNone);
  if (old != kNone) Retire(old);
}

std::optional<uint64_t> WeightSlots::current_version() const {
  // The thread that flips is the one that asks, so the slot cannot change under it.
  const int slot = current_.load();
  if (slot == kNone) return std::nullopt;
  return slots_[slot].version.version;
}

}  // namespace lockstep
