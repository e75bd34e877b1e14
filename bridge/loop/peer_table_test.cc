#include "bridge/loop/peer_table.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::loop {
namespace {

TEST(PeerTableTest, AConnectionIsOnePeerUntilItIsForgotten) {
  PeerTable table;
  const core::PeerId peer = table.Of("a", "").peer;
  EXPECT_NE(peer, 0u);
  EXPECT_EQ(table.Of("a", "").peer, peer);
  EXPECT_EQ(table.Find(peer)->routing_id, "a");
  table.Forget(peer);
  EXPECT_EQ(table.Find(peer), nullptr);
  const PeerTable::Seen again = table.Of("a", "");
  EXPECT_GT(again.peer, peer);
  EXPECT_EQ(again.replaced, std::nullopt);
}

TEST(PeerTableTest, ARoutingIdUnderAnotherNameIsAnotherPeer) {
  PeerTable table;
  const core::PeerId trainer = table.Of("a", "t:trainer").peer;
  const PeerTable::Seen thief = table.Of("a", "s1:sampler");
  EXPECT_NE(thief.peer, trainer);
  EXPECT_EQ(thief.replaced, trainer);
  EXPECT_EQ(table.Find(trainer), nullptr);
}

TEST(PeerTableTest, OnlyWelcomedPeersAreFoundByIncarnation) {
  PeerTable table;
  const Incarnation self{4};
  const core::PeerId peer = table.Of("a", "").peer;
  table.SaidHello(peer, self);
  EXPECT_TRUE(table.OfIncarnation(self).empty());
  table.Welcomed(peer);
  EXPECT_EQ(table.OfIncarnation(self), std::vector<core::PeerId>{peer});
}

TEST(PeerTableTest, StrangersAreBoundedAndWelcomedPeersStay) {
  PeerTable table;
  const core::PeerId friendly = table.Of("friend", "").peer;
  table.Welcomed(friendly);
  const core::PeerId first = table.Of("stranger", "").peer;
  for (size_t i = 0; i < PeerTable::kMaxStrangers; ++i) table.Of(absl::StrCat("x", i), "");
  EXPECT_EQ(table.Find(first), nullptr);
  EXPECT_NE(table.Find(friendly), nullptr);
  EXPECT_EQ(table.size(), PeerTable::kMaxStrangers + 1);
}

}  // namespace
}  // namespace lockstep::loop
