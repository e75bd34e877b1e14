#include "bridge/transport/request_book.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::transport {

void RequestBook::SendWaiting(absl::FunctionRef<absl::StatusOr<uint64_t>(const Message&)> send) {
  while (!waiting_.empty()) {
    const absl::StatusOr<uint64_t> seq = send(waiting_.front().message);
    if (absl::IsUnavailable(seq.status())) return;
    OpenRequest request = std::move(waiting_.front());
    waiting_.pop_front();
    if (seq.ok()) {
      sent_.emplace(*seq, std::move(request));
    } else {
      request.answer(seq.status());
    }
  }
}

void RequestBook::Answered(uint64_t seq, Message message) {
  const auto found = sent_.find(seq);
  if (found == sent_.end()) return;
  const auto& is_last = found->second.options.is_last;
  // A refusal is always the last word.
  if (is_last && !std::holds_alternative<Refused>(message) && !is_last(message)) return;
  const OpenRequest request = std::move(found->second);
  sent_.erase(found);
  request.answer(std::move(message));
}

void RequestBook::BridgeLost() {
  std::vector<OpenRequest> ended;
  for (auto sent = sent_.rbegin(); sent != sent_.rend(); ++sent) {
    OpenRequest& request = sent->second;
    if (request.options.resend) {
      waiting_.push_front(std::move(request));
    } else {
      ended.push_back(std::move(request));
    }
  }
  sent_.clear();
  std::reverse(ended.begin(), ended.end());
  for (const OpenRequest& request : ended) {
    request.answer(absl::UnavailableError(
        "outcome unknown: the connection to the bridge was lost before it answered; look at its "
        "status before asking again"));
  }
}

void RequestBook::Cancel(uint64_t id) {
  std::erase_if(waiting_, [id](const OpenRequest& request) { return request.id == id; });
  std::erase_if(sent_, [id](const auto& entry) { return entry.second.id == id; });
}

void RequestBook::EndAll(const absl::Status& why) {
  const std::map<uint64_t, OpenRequest> sent = std::exchange(sent_, {});
  const std::deque<OpenRequest> waiting = std::exchange(waiting_, {});
  for (const auto& [seq, request] : sent) request.answer(why);
  for (const OpenRequest& request : waiting) request.answer(why);
}

}  // namespace lockstep::transport
