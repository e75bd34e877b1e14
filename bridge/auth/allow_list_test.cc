#include "bridge/auth/allow_list.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "bridge/auth/keys.h"

namespace lockstep::auth {
namespace {

constexpr char kKeyA[] = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
constexpr char kKeyB[] = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";

TEST(AllowListTest, ListedKeysHaveNameAndRole) {
  const absl::StatusOr<AllowList> list = AllowList::Parse(absl::StrCat(
      "# who may come\n#\n\n", kKeyA, " trainer-0 trainer\r\n  ", kKeyB, "\tsampler-1\toperator"));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->size(), 2u);
  EXPECT_EQ(*list->Find(kKeyA), "trainer-0:trainer");
  EXPECT_EQ(*list->Find(kKeyB), "sampler-1:operator");
  EXPECT_EQ(list->Find(""), nullptr);
  EXPECT_EQ(AllowList().Find(kKeyA), nullptr);
}

TEST(AllowListTest, NoKeyBeginsLikeAComment) {
  EXPECT_FALSE(IsKey(absl::StrCat("#0000", std::string(35, '0'))));
}

TEST(AllowListTest, BadLinesAreRefusedByNumber) {
  for (const std::string& line :
       {std::string("abc"), absl::StrCat(kKeyA, " name"), absl::StrCat(kKeyA, " n sampler more"),
        absl::StrCat(kKeyA, " n boss"), absl::StrCat(kKeyA, " a:b sampler"),
        std::string("short n sampler"), absl::StrCat(kKeyA, " n\x01 sampler"),
        absl::StrCat(kKeyB, " again sampler")}) {
    const absl::Status status =
        AllowList::Parse(absl::StrCat(kKeyB, " n sampler\n", line, "\n")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_NE(status.message().find("line 2"), absl::string_view::npos) << status;
  }
}

TEST(AllowListTest, MissingFileIsAnErrorNotAnEmptyList) {
  EXPECT_EQ(AllowList::Load(testing::TempDir() + "/no_such_list").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::auth
