#ifndef LOCKSTEP_BRIDGE_TRANSPORT_REQUEST_BOOK_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_REQUEST_BOOK_H_

// A client's requests from their arrival to their answer: those that wait to be sent, and those
// that were sent, by their number. Internal to client_session; used by its thread only.
//
// Example:
//   book.Add({id, std::move(message), std::move(answer), options});
//   book.SendWaiting([&](const Message& message) { return SendNumbered(message); });
//   book.Answered(envelope.reply_to, std::move(envelope.body));
//   book.BridgeLost();   // sent ones wait again, or end

#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bridge/transport/client_session.h"
#include "policy/protocol.h"

namespace lockstep::transport {

struct OpenRequest {
  uint64_t id = 0;  // of this process; its number changes with every sending
  Message message;
  ClientSession::Answer answer;
  RequestOptions options;
};

class RequestBook {
 public:
  void Add(OpenRequest request) { waiting_.push_back(std::move(request)); }
  bool anything_waits() const { return !waiting_.empty(); }

  // Sends what waits, in order. `send` returns the number it gave; after Unavailable the rest
  // goes on waiting, another error ends that request.
  void SendWaiting(absl::FunctionRef<absl::StatusOr<uint64_t>(const Message&)> send);

  // Nothing happens when no request has that number (a repeat, or one that was given up).
  void Answered(uint64_t seq, Message message);

  // Sent requests wait to be sent again, before the others; those that must not be end with
  // Unavailable.
  void BridgeLost();

  // Forgets it without an answer.
  void Cancel(uint64_t id);

  // Every request ends with `why`.
  void EndAll(const absl::Status& why);

 private:
  std::deque<OpenRequest> waiting_;
  std::map<uint64_t, OpenRequest> sent_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_REQUEST_BOOK_H_
