#include "bridge/loop/peer_table.h"

#include <algorithm>
#include <utility>

namespace lockstep::loop {

PeerTable::Seen PeerTable::Of(absl::string_view routing_id, const std::string& authenticated_name) {
  Seen seen;
  const auto known = by_routing_id_.find(routing_id);
  if (known != by_routing_id_.end()) {
    if (links_.at(known->second).authenticated_name == authenticated_name) {
      seen.peer = known->second;
      return seen;
    }
    seen.replaced = known->second;
    Forget(known->second);
  }
  if (strangers_.size() >= kMaxStrangers) Forget(*strangers_.begin());
  seen.peer = ++newest_;
  by_routing_id_.emplace(routing_id, seen.peer);
  links_[seen.peer] = PeerLink{std::string(routing_id), authenticated_name, {}, false};
  strangers_.insert(seen.peer);
  return seen;
}

const PeerLink* PeerTable::Find(core::PeerId peer) const {
  const auto found = links_.find(peer);
  return found == links_.end() ? nullptr : &found->second;
}

void PeerTable::SaidHello(core::PeerId peer, const Incarnation& incarnation) {
  const auto found = links_.find(peer);
  if (found != links_.end()) found->second.incarnation = incarnation;
}

void PeerTable::Welcomed(core::PeerId peer) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  found->second.welcomed = true;
  strangers_.erase(peer);
}

void PeerTable::Forget(core::PeerId peer) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  by_routing_id_.erase(found->second.routing_id);
  links_.erase(found);
  strangers_.erase(peer);
}

std::vector<core::PeerId> PeerTable::OfIncarnation(const Incarnation& incarnation) const {
  std::vector<core::PeerId> peers;
  for (const auto& [peer, link] : links_) {
    if (link.welcomed && link.incarnation == incarnation) peers.push_back(peer);
  }
  std::sort(peers.begin(), peers.end());
  return peers;
}

}  // namespace lockstep::loop
