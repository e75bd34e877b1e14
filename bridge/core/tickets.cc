#include "bridge/core/tickets.h"

#include "policy/ticket.h"

namespace lockstep::core {

Digest256 TicketFor(const Machine& m, const Sampler& sampler, uint64_t version,
                    uint64_t cache_epoch) {
  return MakeTicket(m.config.ticket_key,
                    {m.config.run, sampler.name, sampler.incarnation, version, cache_epoch});
}

bool GenuineClaim(const Machine& m, const Sampler& sampler, const LiveClaim& claim) {
  return CheckTicket(
      m.config.ticket_key,
      {m.config.run, sampler.name, sampler.incarnation, claim.version, claim.cache_epoch},
      claim.ticket);
}

}  // namespace lockstep::core
