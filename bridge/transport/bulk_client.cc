#include "bridge/transport/bulk_client.h"

#include <zmq.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/chunk_memory.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

using wire::ZmqContext;
using wire::ZmqMessage;
using wire::ZmqSocket;

constexpr uint64_t kMinChunkBytes = 4'096;
constexpr int kHighWaterMark = 2 * kMaxCredit;
constexpr int kReconnectMs = 50;
constexpr int kReconnectMaxMs = 1'000;

}  // namespace

absl::Status CheckBulkOptions(const BulkOptions& options) {
  if (options.chunk_bytes < kMinChunkBytes || options.chunk_bytes > kMaxChunkBytes ||
      options.credit < 1 || options.credit > kMaxCredit || options.retries < 0 ||
      options.stall_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bulk options: chunk_bytes ", options.chunk_bytes, " must be in [", kMinChunkBytes, ", ",
        kMaxChunkBytes, "], credit ", options.credit, " in [1, ", kMaxCredit, "], retries ",
        options.retries, " at least 0, and the stall timeout positive"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BulkConnection> BulkConnection::Open(const BulkEndpoint& endpoint) {
  KeepChunkMemory();
  LOCKSTEP_ASSIGN_OR_RETURN(ZmqContext context, ZmqContext::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(ZmqSocket socket, ZmqSocket::Create(context, ZMQ_DEALER));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetText(ZMQ_PLAIN_USERNAME, kBulkUser));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetText(ZMQ_PLAIN_PASSWORD, BulkPassword(endpoint.key)));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_SNDHWM, kHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_RCVHWM, kHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_IPV6, 1));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_RECONNECT_IVL, kReconnectMs));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt(ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs));
  LOCKSTEP_RETURN_IF_ERROR(socket.SetInt64(ZMQ_MAXMSGSIZE, kMaxChunkBytes));
  if (absl::Status status = socket.Connect(endpoint.address); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the bulk address '", endpoint.address,
                                                   "' cannot be used: ", status.message()));
  }
  return BulkConnection(std::move(context), std::move(socket), endpoint);
}

absl::Status BulkConnection::Send(const BulkHeader& header) {
  return socket_.Send(EncodeBulkHeader(header, key_));
}

absl::Status BulkConnection::SendCopy(zmq_msg_t* message) {
  zmq_msg_t copy;
  zmq_msg_init(&copy);
  if (zmq_msg_copy(&copy, message) != 0) return wire::ZmqError("zmq_msg_copy");
  if (zmq_msg_send(&copy, socket_.get(), ZMQ_DONTWAIT) >= 0) return absl::OkStatus();
  const absl::Status status = wire::ZmqError("zmq_msg_send");
  zmq_msg_close(&copy);
  return status;
}

absl::StatusOr<std::optional<BulkConnection::Answer>> BulkConnection::Receive(absl::Duration wait) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<ZmqMessage> first, socket_.TryReceive());
  if (!first.has_value()) {
    const int64_t wait_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(wait), 0, 60'000);
    zmq_pollitem_t item{socket_.get(), 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, static_cast<long>(wait_ms)) <= 0) return std::optional<Answer>();
    LOCKSTEP_ASSIGN_OR_RETURN(first, socket_.TryReceive());
    if (!first.has_value()) return std::optional<Answer>();
  }
  Answer answer;
  bool more = first->more();
  int extra = 0;
  // zmq hands over a message whole: once its first frame is here, so are the others.
  while (more) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<ZmqMessage> next, socket_.TryReceive());
    if (!next.has_value()) return absl::InternalError("zmq announced a frame and has none");
    more = next->more();
    if (extra++ == 0) answer.payload = *std::move(next);
  }
  const absl::StatusOr<BulkHeader> header = DecodeBulkHeader(first->bytes(), key_);
  const bool whole = header.ok() && header->incarnation == incarnation_ &&
                     first->bytes().size() == kBulkHeaderBytes &&
                     extra == (header->kind == BulkKind::kChunk ? 1 : 0) &&
                     (extra == 0 || answer.payload.bytes().size() == header->length);
  if (!whole) {
    ++bad_answers_;
    return std::optional<Answer>();
  }
  answer.header = *header;
  return std::optional<Answer>(std::move(answer));
}

absl::Status RefusedStatus(const BulkHeader& answer) {
  const auto code = static_cast<absl::StatusCode>(answer.value);
  const std::string what = absl::StrCat("the bridge refused chunk [", answer.offset, ", +",
                                        answer.length, ") of arena ", answer.arena_id, ": ");
  switch (code) {
    case absl::StatusCode::kNotFound:
      return absl::NotFoundError(what + "it has no such arena; the round is over");
    case absl::StatusCode::kPermissionDenied:
      return absl::PermissionDeniedError(what + "this incarnation has no grant for it");
    case absl::StatusCode::kOutOfRange:
      return absl::OutOfRangeError(what + "it lies outside the arena; the manifests differ");
    default:
      return absl::InternalError(absl::StrCat(what, absl::StatusCodeToString(code)));
  }
}

}  // namespace lockstep::transport
