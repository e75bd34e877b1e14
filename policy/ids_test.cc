#include "policy/ids.h"

#include <cctype>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// BLAKE2b with a 32-byte output, from the published test vectors of the algorithm.
constexpr char kEmptyDigest[] = "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8";
constexpr char kAbcDigest[] = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";

TEST(Blake2bTest, MatchesPublishedVectors) {
  EXPECT_EQ(ToHex(Blake2b256("")), kEmptyDigest);
  EXPECT_EQ(ToHex(Blake2b256("abc")), kAbcDigest);
}

TEST(Blake2bTest, StreamingEqualsOneShot) {
  Blake2b256Hasher hasher;
  hasher.Update("a");
  hasher.Update("");
  hasher.Update("bc");
  EXPECT_EQ(ToHex(hasher.Finish()), kAbcDigest);
}

TEST(Blake2bTest, FramingIsLittleEndianWithLengths) {
  Blake2b256Hasher framed;
  framed.UpdateU32(0x04030201);
  framed.UpdateU64(0x0807060504030201);
  framed.UpdateString("xy");
  const char raw[] = "\x01\x02\x03\x04\x01\x02\x03\x04\x05\x06\x07\x08\x02\x00\x00\x00xy";
  EXPECT_EQ(framed.Finish(), Blake2b256(absl::string_view(raw, sizeof(raw) - 1)));
}

TEST(Blake2bTest, KeyChangesTheDigest) {
  Digest256 key{};
  const Digest256 zero_key = Blake2b256Keyed(key, "abc");
  EXPECT_NE(zero_key, Blake2b256("abc"));
  key[31] = 1;
  EXPECT_NE(Blake2b256Keyed(key, "abc"), zero_key);
}

TEST(HexTest, DigestsRoundTripInEitherCase) {
  const auto digest = DigestFromHex(kAbcDigest);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(ToHex(*digest), kAbcDigest);
  std::string upper = kAbcDigest;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(*DigestFromHex(upper), *digest);
}

TEST(HexTest, WrongLengthAndWrongDigitsAreErrorsThatShowTheInput) {
  EXPECT_FALSE(DigestFromHex("").ok());
  EXPECT_FALSE(DigestFromHex(std::string(63, 'a')).ok());
  EXPECT_FALSE(DigestFromHex(std::string(65, 'a')).ok());
  const auto bad = DigestFromHex(std::string(63, 'a') + "g");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("aaag"), absl::string_view::npos);
  EXPECT_FALSE(IncarnationFromHex(std::string(64, 'a')).ok());
  EXPECT_TRUE(IncarnationFromHex(std::string(32, 'a')).ok());
}

TEST(ConstantTimeEqualTest, SeesEveryByte) {
  const Digest256 a = Blake2b256("a");
  EXPECT_TRUE(ConstantTimeEqual(a, a));
  for (size_t i = 0; i < a.size(); ++i) {
    Digest256 b = a;
    b[i] ^= 1;
    EXPECT_FALSE(ConstantTimeEqual(a, b)) << i;
  }
}

}  // namespace
}  // namespace lockstep
