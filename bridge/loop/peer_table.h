#ifndef LOCKSTEP_BRIDGE_LOOP_PEER_TABLE_H_
#define LOCKSTEP_BRIDGE_LOOP_PEER_TABLE_H_

// Which connection of the control port is which peer of the core. A connection is known by
// ZeroMQ's routing id, which a peer may choose for itself; so the name it was authenticated by
// belongs to it too: the same id under another name is another peer.
//
// Example:
//   const PeerTable::Seen seen = peers.Of(routing_id, authenticated_name);
//   if (seen.replaced) Hand(core::PeerGone{*seen.replaced, "..."});
//   if (const PeerLink* link = peers.Find(send.peer)) socket.Send(link->routing_id, frame);

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "bridge/core/core.h"
#include "policy/ids.h"

namespace lockstep::loop {

struct PeerLink {
  std::string routing_id;
  std::string authenticated_name;  // empty over ipc
  Incarnation incarnation{};       // of its newest Hello
  bool welcomed = false;           // the core has a session for it
};

class PeerTable {
 public:
  // Connections that said nothing the core welcomed; the oldest is forgotten first (I10).
  static constexpr size_t kMaxStrangers = 4'096;

  struct Seen {
    core::PeerId peer = 0;
    std::optional<core::PeerId> replaced;  // had this routing id under another name
  };

  // The peer that a message came from; a new one when it is not known.
  Seen Of(absl::string_view routing_id, const std::string& authenticated_name);

  // Nullptr when it was forgotten.
  const PeerLink* Find(core::PeerId peer) const;

  void SaidHello(core::PeerId peer, const Incarnation& incarnation);
  void Welcomed(core::PeerId peer);
  void Forget(core::PeerId peer);

  std::vector<core::PeerId> OfIncarnation(const Incarnation& incarnation) const;
  size_t size() const { return links_.size(); }

 private:
  core::PeerId newest_ = 0;
  absl::flat_hash_map<std::string, core::PeerId> by_routing_id_;
  absl::flat_hash_map<core::PeerId, PeerLink> links_;
  std::set<core::PeerId> strangers_;  // oldest first: ids grow
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_PEER_TABLE_H_
