#ifndef LOCKSTEP_SAMPLER_CLIENT_WEIGHT_SLOTS_H_
#define LOCKSTEP_SAMPLER_CLIENT_WEIGHT_SLOTS_H_

// The two slots of a sampler: one version is served while the next arrives and is verified in
// the other. A forward pass holds a WeightsGuard and sees one version from its first read to
// its last (I2); a slot's memory is given back when its last reader has left.
//
// Example, an engine's thread:
//   WeightsGuard guard = slots.Acquire();
//   if (!guard) return;                         // nothing was activated yet
//   Forward(guard->Tensor(3), guard->version);
//
// Example, the client's worker:
//   slots.WaitUntilFree(deadline);
//   slots.Stage(std::move(served));             // then verify slots.staged()
//   slots.Flip();                               // new readers get it; the old one retires

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bridge/transport/transport.h"
#include "policy/manifest.h"

namespace lockstep {

struct ServedVersion {
  uint64_t version = 0;
  uint64_t arena_id = 0;
  std::shared_ptr<const Manifest> manifest;
  ArenaLayout layout;
  std::unique_ptr<transport::InstalledVersion> installed;

  // Bytes of Manifest::tensors[index], row-major, little-endian.
  absl::Span<const uint8_t> Tensor(size_t index) const {
    return installed->bytes().subspan(layout.offsets[index], layout.sizes[index]);
  }
};

class WeightSlots;

// Holds one version in place. Movable; destroyed on any thread, before its WeightSlots.
class WeightsGuard {
 public:
  WeightsGuard() = default;
  WeightsGuard(WeightsGuard&& other) noexcept
      : slots_(std::exchange(other.slots_, nullptr)), slot_(other.slot_) {}
  WeightsGuard& operator=(WeightsGuard&& other) noexcept {
    if (this != &other) {
      Release();
      slots_ = std::exchange(other.slots_, nullptr);
      slot_ = other.slot_;
    }
    return *this;
  }
  ~WeightsGuard() { Release(); }

  // False when no version was active.
  explicit operator bool() const { return slots_ != nullptr; }
  const ServedVersion& operator*() const;
  const ServedVersion* operator->() const { return &**this; }

  void Release();

 private:
  friend class WeightSlots;
  WeightsGuard(WeightSlots* slots, int slot) : slots_(slots), slot_(slot) {}

  WeightSlots* slots_ = nullptr;
  int slot_ = 0;
};

// Acquire and guards: any thread, no lock, no allocation. The rest: one thread at a time.
class WeightSlots {
 public:
  // What a version left behind when its memory was given back: time for ReleaseArena. Runs on
  // the thread that let go last, which may be an engine's: it should only queue.
  using OnReleased = std::function<void(uint64_t version, uint64_t arena_id)>;

  explicit WeightSlots(OnReleased on_released);
  // Waits for the last guard.
  ~WeightSlots();
  WeightSlots(const WeightSlots&) = delete;
  WeightSlots& operator=(const WeightSlots&) = delete;

  WeightsGuard Acquire();

  // Puts a version into the free slot, where only staged() sees it. FailedPrecondition when
  // something is staged, or the retired version still has readers.
  absl::Status Stage(ServedVersion version);

  // DeadlineExceeded names the version whose readers stay.
  absl::Status WaitUntilFree(absl::Time deadline);

  // Null when nothing is staged. Valid until Flip or DropStaged.
  const ServedVersion* staged() const;

  // Forgets what is staged; no reader ever saw it.
  void DropStaged();

  // The staged version becomes the one that new readers get; the one before retires, and its
  // memory is given back when its readers have left. FailedPrecondition when nothing is staged.
  absl::Status Flip();

  // New readers get nothing (a fenced or poisoned sampler); the version served retires.
  void Deactivate();

  std::optional<uint64_t> current_version() const;

 private:
  friend class WeightsGuard;

  static constexpr int kNone = -1;
  // Slot::word: bit 63 retired, bits 32..62 the generation, bits 0..31 the readers. In one
  // word, so that "retired and nobody left" is seen by exactly one thread: the one whose
  // exchange of that very word succeeds.
  static constexpr uint64_t kRetired = uint64_t{1} << 63;
  static constexpr uint64_t kGeneration = uint64_t{1} << 32;
  static constexpr uint64_t kReaders = kGeneration - 1;

  struct Slot {
    alignas(64) std::atomic<uint64_t> word{0};
    // Written while the slot is free; read by holders of a guard.
    ServedVersion version;
  };

  void Leave(int slot);
  void Retire(int slot);
  // `word` was seen retired and without readers.
  void TryRelease(int slot, uint64_t word);
  void GiveBack(int slot);

  OnReleased on_released_;
  std::array<Slot, 2> slots_;
  std::atomic<int> current_{kNone};

  // Not absl's: thread checkers do not see through the system's Abseil.
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  // Guarded by mutex_.
  std::array<bool, 2> free_ = {true, true};
  int staged_ = kNone;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CLIENT_WEIGHT_SLOTS_H_
