#include "policy/json_text.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

using std::string_literals::operator""s;

TEST(JsonTextTest, ANulIsRefusedWhereverItStands) {
  for (const std::string& text :
       {"{\"a\": 1}\0"s, "{\"a\": 1}\0 and more"s, "\0{}"s, "{\"a\0\": 1}"s}) {
    const absl::StatusOr<nlohmann::json> parsed = ParseJson(text, JsonLimits{});
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("NUL at byte"), absl::string_view::npos)
        << parsed.status();
  }
  EXPECT_TRUE(ParseJson("{\"a\": \"\\u0000\"}", JsonLimits{}).ok());
}

TEST(JsonTextTest, TextAfterTheValueIsRefused) {
  EXPECT_FALSE(ParseJson("{} {}", JsonLimits{}).ok());
  EXPECT_FALSE(ParseJson("1 x", JsonLimits{}).ok());
  EXPECT_TRUE(ParseJson(" {} \n", JsonLimits{}).ok());
}

TEST(JsonTextTest, AKeyThatComesTwiceIsNamed) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(R"({"k": 1, "k": 2})", JsonLimits{});
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("'k' twice"), absl::string_view::npos);
}

TEST(JsonTextTest, DepthAndSizeAreBounded) {
  EXPECT_TRUE(ParseJson("[[1]]", JsonLimits{.max_bytes = 5, .max_depth = 2}).ok());
  EXPECT_FALSE(ParseJson("[[1]]", JsonLimits{.max_bytes = 4, .max_depth = 2}).ok());
  EXPECT_FALSE(ParseJson("[[1]]", JsonLimits{.max_bytes = 5, .max_depth = 1}).ok());
}

}  // namespace
}  // namespace lockstep
