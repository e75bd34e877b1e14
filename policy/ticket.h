#ifndef LOCKSTEP_POLICY_TICKET_H_
#define LOCKSTEP_POLICY_TICKET_H_

// A ticket is what the bridge gives a sampler with Live: a MAC that says "this incarnation
// serves this version since this cache flush". Only the holder of the run's key can make
// one, and it is valid for exactly the fields it covers.
//
// Format: BLAKE2b-256 keyed with the run's 32-byte ticket key, over the line
// "lockstep ticket@v1\n", then run and sampler (each a uint32 length and its bytes), the 16
// bytes of the incarnation, version and cache epoch (uint64), little-endian.
//
// Example:
//   live.ticket = MakeTicket(key, {"default", "s1", incarnation, 4, 17});
//   if (!CheckTicket(key, {"default", rollout.sampler, ...}, rollout.ticket)) ...

#include <cstdint>
#include <string>

#include "policy/ids.h"

namespace lockstep {

struct TicketSubject {
  std::string run;
  std::string sampler;
  Incarnation incarnation{};
  uint64_t version = 0;
  uint64_t cache_epoch = 0;
};

Digest256 MakeTicket(const Digest256& key, const TicketSubject& subject);

// In time that does not depend on where a forgery differs.
bool CheckTicket(const Digest256& key, const TicketSubject& subject, const Digest256& ticket);

}  // namespace lockstep

#endif  // LOCKSTEP_POLICY_TICKET_H_
