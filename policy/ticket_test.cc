#include "policy/ticket.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TicketSubject Subject() {
  TicketSubject subject{"default", "s1", {}, 4, 17};
  subject.incarnation[3] = 9;
  return subject;
}

TEST(TicketTest, GenuineTicketPasses) {
  const Digest256 key = Blake2b256("key");
  EXPECT_TRUE(CheckTicket(key, Subject(), MakeTicket(key, Subject())));
}

TEST(TicketTest, AnyOtherFieldKeyOrBitFails) {
  const Digest256 key = Blake2b256("key");
  const Digest256 ticket = MakeTicket(key, Subject());
  TicketSubject other = Subject();
  other.run = "other";
  EXPECT_FALSE(CheckTicket(key, other, ticket));
  other = Subject();
  other.sampler = "s2";
  EXPECT_FALSE(CheckTicket(key, other, ticket));
  other = Subject();
  other.incarnation[0] = 1;
  EXPECT_FALSE(CheckTicket(key, other, ticket));
  other = Subject();
  other.version = 5;
  EXPECT_FALSE(CheckTicket(key, other, ticket));
  other = Subject();
  other.cache_epoch = 18;
  EXPECT_FALSE(CheckTicket(key, other, ticket));
  EXPECT_FALSE(CheckTicket(Blake2b256("another key"), Subject(), ticket));
  for (size_t i = 0; i < ticket.size(); ++i) {
    Digest256 forged = ticket;
    forged[i] ^= 0x80;
    EXPECT_FALSE(CheckTicket(key, Subject(), forged)) << i;
  }
}

TEST(TicketTest, FieldsCannotRunIntoEachOther) {
  const Digest256 key{};
  TicketSubject a = Subject();
  TicketSubject b = Subject();
  a.run = "ab";
  a.sampler = "c";
  b.run = "a";
  b.sampler = "bc";
  EXPECT_NE(MakeTicket(key, a), MakeTicket(key, b));
}

TEST(TicketTest, ZeroTicketIsNeverGenuine) {
  EXPECT_FALSE(CheckTicket(Digest256{}, Subject(), Digest256{}));
}

}  // namespace
}  // namespace lockstep
