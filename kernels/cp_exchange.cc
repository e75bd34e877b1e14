#include "kernels/cp_exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep::kernels {

class LocalCpGroup::LocalRank : public CpExchange {
 public:
  LocalRank(LocalCpGroup& group, int rank, int size) : group_(group), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status Send(int to, absl::Span<const uint8_t> data) override {
    return group_.Put(rank_, to, data);
  }

  absl::Status Receive(int from, absl::Span<uint8_t> data) override {
    return group_.Take(from, rank_, data);
  }

  absl::Status AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all) override {
    if (all.size() != mine.size() * static_cast<size_t>(size_)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "exchange: expected room for ", mine.size() * size_, " bytes, got ", all.size()));
    }
    for (int to = 0; to < size_; ++to) {
      if (absl::Status status = Send(to, mine); !status.ok()) return status;
    }
    for (int from = 0; from < size_; ++from) {
      const absl::Span<uint8_t> place = all.subspan(mine.size() * from, mine.size());
      if (absl::Status status = Receive(from, place); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast(int root, absl::Span<uint8_t> data) override {
    if (rank_ != root) return Receive(root, data);
    for (int to = 0; to < size_; ++to) {
      if (to == root) continue;
      if (absl::Status status = Send(to, data); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  LocalCpGroup& group_;
  const int rank_;
  const int size_;
};

LocalCpGroup::LocalCpGroup(int size, std::chrono::milliseconds timeout) : timeout_(timeout) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<LocalRank>(*this, rank, size));
  }
}

void LocalCpGroup::Abort(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_.ok()) aborted_ = status;
  changed_.notify_all();
}

absl::Status LocalCpGroup::Put(int from, int to, absl::Span<const uint8_t> data) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  boxes_[{from, to}].emplace_back(data.begin(), data.end());
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status LocalCpGroup::Take(int from, int to, absl::Span<uint8_t> data) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto& box = boxes_[{from, to}];
  if (!changed_.wait_for(lock, timeout_, [&] { return !box.empty() || !aborted_.ok(); })) {
    return absl::DeadlineExceededError(absl::StrCat("exchange: rank ", to,
                                                    " heard nothing from rank ", from, " for ",
                                                    timeout_.count(), " ms"));
  }
  if (!aborted_.ok()) return aborted_;
  const std::vector<uint8_t> message = std::move(box.front());
  box.pop_front();
  if (message.size() != data.size()) {
    return absl::DataLossError(absl::StrCat("exchange: rank ", to, " expected ", data.size(),
                                            " bytes from rank ", from, ", got ", message.size()));
  }
  std::copy(message.begin(), message.end(), data.begin());
  return absl::OkStatus();
}

}  // namespace lockstep::kernels
