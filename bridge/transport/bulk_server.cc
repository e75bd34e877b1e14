#include "bridge/transport/bulk_server.h"

#include <zmq.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bridge/transport/chunk_memory.h"
#include "policy/status_macros.h"

namespace lockstep::transport {
namespace {

using wire::RoutedFrame;
using wire::ZmqContext;
using wire::ZmqMessage;
using wire::ZmqSocket;

// The address at which libzmq asks about passwords (RFC 27); one handler a context.
constexpr char kZapAddress[] = "inproc://zeromq.zap.01";
constexpr size_t kZapFrames = 8;
constexpr size_t kZapMechanism = 5, kZapUser = 6, kZapPassword = 7;

// Above what credit allows, so that it never decides: a full queue would drop in silence.
constexpr int kSendHighWaterMark = 2 * BulkServer::kMaxInFlightPerPeer;
// A peer's received and unread uploads: this many chunks.
constexpr int kReceiveHighWaterMark = 16;

// What a queued chunk keeps alive.
struct ChunkHold {
  std::shared_ptr<const StoredArena> arena;
  std::shared_ptr<std::atomic<int>> in_flight;
};

void ReleaseChunk(void*, void* hint) {
  ChunkHold* hold = static_cast<ChunkHold*>(hint);
  hold->in_flight->fetch_sub(1, std::memory_order_relaxed);
  delete hold;
}

}  // namespace

BulkServer::BulkServer(ZmqContext context, ZmqSocket door, ZmqSocket router, const Digest256& key,
                       ArenaStore& store)
    : context_(std::move(context)),
      door_(std::move(door)),
      router_(std::move(router)),
      key_(key),
      password_(BulkPassword(key)),
      store_(&store) {}

absl::StatusOr<std::unique_ptr<BulkServer>> BulkServer::Listen(const std::string& address,
                                                               const Digest256& key,
                                                               ArenaStore& store) {
  KeepChunkMemory();
  LOCKSTEP_ASSIGN_OR_RETURN(ZmqContext context, ZmqContext::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(ZmqSocket door, ZmqSocket::Create(context, ZMQ_ROUTER));
  // Before the port is bound: without a handler libzmq could not check a password.
  LOCKSTEP_RETURN_IF_ERROR(door.Bind(kZapAddress));
  LOCKSTEP_ASSIGN_OR_RETURN(ZmqSocket router, ZmqSocket::Create(context, ZMQ_ROUTER));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_PLAIN_SERVER, 1));
  LOCKSTEP_RETURN_IF_ERROR(router.SetText(ZMQ_ZAP_DOMAIN, "bulk"));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_ROUTER_MANDATORY, 1));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_IPV6, 1));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_SNDHWM, kSendHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt(ZMQ_RCVHWM, kReceiveHighWaterMark));
  LOCKSTEP_RETURN_IF_ERROR(router.SetInt64(ZMQ_MAXMSGSIZE, kBulkHeaderBytes + kMaxChunkBytes));
  LOCKSTEP_RETURN_IF_ERROR(router.Bind(address));
  std::unique_ptr<BulkServer> server(
      new BulkServer(std::move(context), std::move(door), std::move(router), key, store));
  LOCKSTEP_ASSIGN_OR_RETURN(server->address_, server->router_.LastEndpoint());
  return server;
}

BulkEvents BulkServer::HandleReadable() {
  BulkEvents events;
  HandleDoor(events);
  for (int i = 0; i < kMaxMessagesPerCall; ++i) {
    absl::StatusOr<std::optional<RoutedFrame>> routed = wire::TryReceiveRouted(router_);
    if (!routed.ok() || !routed->has_value()) return events;
    Handle(**routed, events);
  }
  events.more = true;
  return events;
}

// A ZAP request through a ROUTER: the asker's id, an empty frame, then version, request id,
// domain, address, routing id, mechanism and, for PLAIN, user and password.
void BulkServer::HandleDoor(BulkEvents& events) {
  for (;;) {
    std::vector<ZmqMessage> frames;
    do {
      absl::StatusOr<std::optional<ZmqMessage>> frame = door_.TryReceive();
      if (!frame.ok() || !frame->has_value()) return;
      frames.push_back(**std::move(frame));
    } while (frames.back().more());
    if (frames.size() < 4) continue;
    const absl::Span<ZmqMessage> request = absl::MakeSpan(frames).subspan(2);
    bool admitted = false;
    if (request.size() == kZapFrames && request[kZapMechanism].text() == "PLAIN" &&
        request[kZapUser].text() == kBulkUser) {
      // Compared as digests: in constant time, whatever the length of what came.
      admitted = ConstantTimeEqual(Blake2b256(request[kZapPassword].text()), Blake2b256(password_));
    }
    if (!admitted) ++events.unauthorised;
    const absl::string_view reply[] = {frames[0].text(),          frames[1].text(),
                                       request[0].text(),         request[1].text(),
                                       admitted ? "200" : "400",  admitted ? "" : "unknown",
                                       admitted ? kBulkUser : "", ""};
    for (size_t i = 0; i < std::size(reply); ++i) {
      const auto* data = reinterpret_cast<const uint8_t*>(reply[i].data());
      const int flags = i + 1 < std::size(reply) ? ZMQ_SNDMORE : 0;
      if (!door_.Send({data, reply[i].size()}, flags).ok()) return;
    }
  }
}

void BulkServer::Handle(const RoutedFrame& routed, BulkEvents& events) {
  const absl::Span<const uint8_t> body = routed.frame.body.bytes();
  if (routed.frame.dropped_frames > 0) {
    ++events.malformed;
    return;
  }
  const absl::StatusOr<BulkHeader> header = DecodeBulkHeader(body, key_);
  if (!header.ok()) {
    ++(absl::IsPermissionDenied(header.status()) ? events.unauthorised : events.malformed);
    return;
  }
  const absl::Span<const uint8_t> payload = body.subspan(kBulkHeaderBytes);
  if (header->kind == BulkKind::kGetChunk && payload.empty()) {
    Get(routed.routing_id, *header, events);
  } else if (header->kind == BulkKind::kPutChunk && payload.size() == header->length) {
    Put(routed.routing_id, *header, payload, events);
  } else {
    ++events.malformed;
  }
}

void BulkServer::Get(const std::string& routing_id, const BulkHeader& request, BulkEvents& events) {
  const absl::StatusOr<ArenaStore::Readable> found =
      store_->OpenForRead(request.incarnation, request.arena_id);
  if (!found.ok()) {
    Answer(routing_id, request, BulkKind::kRefused, static_cast<uint64_t>(found.status().code()));
    return;
  }
  const uint64_t size = found->arena->bytes().size();
  if (request.offset > size || request.length > size - request.offset) {
    Answer(routing_id, request, BulkKind::kRefused,
           static_cast<uint64_t>(absl::StatusCode::kOutOfRange));
    return;
  }
  if (request.offset + request.length > found->bytes_ready) {
    Answer(routing_id, request, BulkKind::kNotYet, found->bytes_ready);
    return;
  }
  const std::shared_ptr<std::atomic<int>> in_flight = InFlight(request.incarnation);
  if (in_flight == nullptr || in_flight->load(std::memory_order_relaxed) >= kMaxInFlightPerPeer) {
    ++events.over_limit;
    return;
  }
  if (SendChunk(routing_id, request, found->arena, in_flight)) {
    events.bytes_sent[request.incarnation] += request.length;
  }
}

bool BulkServer::SendChunk(const std::string& routing_id, const BulkHeader& request,
                           const std::shared_ptr<const StoredArena>& arena,
                           const std::shared_ptr<std::atomic<int>>& in_flight) {
  const absl::Span<const uint8_t> payload = arena->bytes().subspan(request.offset, request.length);
  BulkHeader header = request;
  header.kind = BulkKind::kChunk;
  header.value = PayloadHash(payload);
  const BulkHeaderBytes bytes = EncodeBulkHeader(header, key_);
  const auto* id = reinterpret_cast<const uint8_t*>(routing_id.data());
  // A full queue or a peer that left shows at the first frame; the rest of a begun message is
  // always taken.
  if (!router_.Send({id, routing_id.size()}, ZMQ_SNDMORE).ok()) return false;
  if (!router_.Send(bytes, ZMQ_SNDMORE).ok()) return false;
  zmq_msg_t message;
  auto* hold = new ChunkHold{arena, in_flight};
  in_flight->fetch_add(1, std::memory_order_relaxed);
  // libzmq does not write to the payload of a message that is sent.
  if (zmq_msg_init_data(&message, const_cast<uint8_t*>(payload.data()), payload.size(),
                        &ReleaseChunk, hold) != 0) {
    ReleaseChunk(nullptr, hold);
    return false;
  }
  if (zmq_msg_send(&message, router_.get(), ZMQ_DONTWAIT) >= 0) return true;
  zmq_msg_close(&message);
  return false;
}

void BulkServer::Put(const std::string& routing_id, const BulkHeader& request,
                     absl::Span<const uint8_t> payload, BulkEvents& events) {
  absl::StatusOr<uint64_t> mark = absl::DataLossError("the payload was damaged on its way");
  if (PayloadHash(payload) == request.value) {
    mark = store_->WriteChunk(request.incarnation, request.arena_id, request.offset, payload);
  }
  if (!mark.ok()) {
    Answer(routing_id, request, BulkKind::kRefused, static_cast<uint64_t>(mark.status().code()));
    return;
  }
  events.upload_marks[request.arena_id] = *mark;
  Answer(routing_id, request, BulkKind::kPutAck, *mark);
}

void BulkServer::Answer(const std::string& routing_id, BulkHeader header, BulkKind kind,
                        uint64_t value) {
  header.kind = kind;
  header.value = value;
  // A peer that left or whose queue is full asks again or is gone.
  wire::SendRouted(router_, routing_id, EncodeBulkHeader(header, key_)).IgnoreError();
}

std::shared_ptr<std::atomic<int>> BulkServer::InFlight(const Incarnation& incarnation) {
  const auto it = peers_.find(incarnation);
  if (it != peers_.end()) return it->second;
  if (peers_.size() >= kMaxPeers) {
    std::erase_if(peers_, [](const auto& peer) { return peer.second->load() == 0; });
    if (peers_.size() >= kMaxPeers) return nullptr;
  }
  return peers_.emplace(incarnation, std::make_shared<std::atomic<int>>(0)).first->second;
}

}  // namespace lockstep::transport
