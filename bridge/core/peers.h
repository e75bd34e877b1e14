#ifndef LOCKSTEP_BRIDGE_CORE_PEERS_H_
#define LOCKSTEP_BRIDGE_CORE_PEERS_H_

// Sessions: Hello, incarnations, leases, and the memory of requests (I7).
//
// A connection that lapses or breaks is gone at once; its incarnation may come back on a new
// connection and register again. A new incarnation under a name replaces the old one, which
// is told stale_incarnation and can never come back.

#include <optional>
#include <string>

#include "bridge/core/state.h"

namespace lockstep::core {

// A message that its session admits; dispatch it, then send no other answer to its seq.
struct Request {
  const Session* session = nullptr;
  ReplyTo reply;
};

// Handles Hello, Ping, Goodbye, repeats and everything that is not admitted; returns the
// request when `message` is for another module.
std::optional<Request> AdmitMessage(Machine& m, const PeerMessage& message);

void HandlePeerGone(Machine& m, const PeerGone& gone);
void HandleMalformed(Machine& m, const MalformedMessage& malformed);
void LeaseTimer(Machine& m, PeerId peer);

}  // namespace lockstep::core

#endif  // LOCKSTEP_BRIDGE_CORE_PEERS_H_
