#include "policy/safetensors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "policy/refusal_list.h"
#include "policy/refusal_testing.h"

namespace lockstep {
namespace {

std::string WithLength(std::string json) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i)));
  return out + json;
}

// Judges a file of this header and `data_bytes` of data.
SafetensorsParse Parse(std::string json, uint64_t data_bytes) {
  const std::string prefix = WithLength(std::move(json));
  return ParseSafetensorsHeader(prefix.size() + data_bytes, prefix);
}

std::string Entry(absl::string_view name, absl::string_view dtype, absl::string_view shape,
                  absl::string_view offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}");
}

// The one refusal of a file whose header is `json`, checked for its code and key.
testing::AssertionResult RefusedWith(std::string json, uint64_t data_bytes, absl::string_view key,
                                     absl::string_view text) {
  const SafetensorsParse parse = Parse(std::move(json), data_bytes);
  if (Mentions(parse.refusals, RefusalCode::kBadCheckpoint, key, text)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "got: '" << FormatRefusals(parse.refusals) << "'";
}

TEST(SafetensorsTest, ReadsTensorsSortedWithFileOffsets) {
  const SafetensorsParse parse =
      Parse(absl::StrCat("{\"__metadata__\":{\"format\":\"pt\"},",
                         Entry("b", "F32", "[2]", "[0,8]"), ",", Entry("a", "BF16", "[]", "[8,10]"),
                         ",", Entry("empty", "I64", "[0,5]", "[8,8]"), "}  "),
            10);
  ASSERT_TRUE(parse.refusals.empty()) << FormatRefusals(parse.refusals);
  const uint64_t start = parse.header.data_start;
  ASSERT_EQ(parse.header.tensors.size(), 3u);
  EXPECT_EQ(parse.header.tensors[0],
            (SafetensorsTensor{{"a", Dtype::kBF16, {}}, start + 8, start + 10}));
  EXPECT_EQ(parse.header.tensors[1],
            (SafetensorsTensor{{"b", Dtype::kF32, {2}}, start, start + 8}));
  EXPECT_EQ(parse.header.tensors[2].spec.name, "empty");
  EXPECT_EQ(parse.header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(SafetensorsTest, FileWithoutTensorsIsValid) {
  EXPECT_TRUE(Parse("{}", 0).refusals.empty());
  EXPECT_TRUE(RefusedWith("{}", 4, "", "belong to no tensor"));
}

TEST(SafetensorsTest, TruncatedFilesAreRefused) {
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    const std::string prefix(bytes, '\0');
    EXPECT_FALSE(ParseSafetensorsHeader(bytes, prefix).refusals.empty());
  }
  const std::string whole = WithLength("{" + Entry("a", "U8", "[1]", "[0,1]") + "}");
  for (size_t bytes = 8; bytes < whole.size(); ++bytes) {
    const auto parse = ParseSafetensorsHeader(bytes, absl::string_view(whole).substr(0, bytes));
    EXPECT_TRUE(Mentions(parse.refusals, RefusalCode::kBadCheckpoint, "", "truncated")) << bytes;
  }
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[4]", "[0,4]") + "}", 3, "a", "truncated"));
}

TEST(SafetensorsTest, PrefixShorterThanTheHeaderIsRefused) {
  const std::string whole = WithLength("{}      ");
  const auto parse = ParseSafetensorsHeader(whole.size(), absl::string_view(whole).substr(0, 10));
  EXPECT_TRUE(Mentions(parse.refusals, RefusalCode::kBadCheckpoint, "", "were read"));
}

TEST(SafetensorsTest, LyingHeaderLengthIsRefusedBeforeAnyAllocation) {
  std::string prefix(8, '\xFF');
  auto end = SafetensorsHeaderEnd(uint64_t{1} << 40, prefix);
  ASSERT_FALSE(end.ok());
  EXPECT_TRUE(absl::StrContains(end.status().message(), "the limit is 100000000"));
  prefix.assign("\x10\0\0\0\0\0\0\0", 8);
  end = SafetensorsHeaderEnd(20, prefix);
  ASSERT_FALSE(end.ok());
  EXPECT_TRUE(absl::StrContains(end.status().message(), "claims 16 bytes, but only 12"));
  EXPECT_EQ(*SafetensorsHeaderEnd(24, prefix), 24u);
}

TEST(SafetensorsTest, HeaderThatIsNotOneJsonObjectIsRefused) {
  EXPECT_TRUE(RefusedWith("[]", 0, "", "begin with '{'"));
  EXPECT_TRUE(RefusedWith(" {}", 0, "", "begin with '{'"));
  EXPECT_TRUE(RefusedWith("", 0, "", "begin with '{'"));
  EXPECT_TRUE(RefusedWith("{} x", 0, "", "invalid JSON"));
  EXPECT_TRUE(RefusedWith("{}{}", 0, "", "invalid JSON"));
  EXPECT_TRUE(RefusedWith("{\"a\":", 0, "a", "invalid JSON"));
  EXPECT_TRUE(RefusedWith("{\"a\xFF\":{}}", 0, "", "UTF-8"));
  EXPECT_TRUE(RefusedWith(std::string("{}\0\0", 4), 0, "", "invalid JSON"));
}

TEST(SafetensorsTest, DuplicateNamesAndKeysAreRefused) {
  const std::string a = Entry("a", "U8", "[1]", "[0,1]");
  EXPECT_TRUE(RefusedWith("{" + a + "," + a + "}", 1, "a", "twice"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          1, "a", "'dtype' twice"));
  EXPECT_TRUE(RefusedWith(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "", "'k' twice"));
  EXPECT_TRUE(RefusedWith(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__", "twice"));
}

TEST(SafetensorsTest, UnknownDtypesAndKeysAreRefused) {
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "F128", "[1]", "[0,16]") + "}", 16, "a", "'F128'"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "bf16", "[1]", "[0,2]") + "}", 2, "a", "'bf16'"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})",
                          1, "a", "'stride'"));
}

TEST(SafetensorsTest, MissingKeysAreNamed) {
  EXPECT_TRUE(RefusedWith(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "a", "no dtype"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "a", "no shape"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "a", "no data_offsets"));
}

TEST(SafetensorsTest, ValuesOfTheWrongTypeAreRefused) {
  EXPECT_TRUE(RefusedWith(R"({"a":null})", 0, "a", "got null"));
  EXPECT_TRUE(RefusedWith(R"({"a":[]})", 0, "a", "got an array"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"dtype":7}})", 0, "a", "got the number 7"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"shape":{}}})", 0, "a", "got an object"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"shape":["1"]}})", 0, "a", "got the string '1'"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"shape":[[1]]}})", 0, "a", "got an array"));
  EXPECT_TRUE(RefusedWith(R"({"a":{"shape":[true]}})", 0, "a", "got true"));
  EXPECT_TRUE(RefusedWith(R"({"__metadata__":{"k":1}})", 0, "", "a string for each"));
  EXPECT_TRUE(RefusedWith(R"({"__metadata__":"x"})", 0, "", "an object as __metadata__"));
}

TEST(SafetensorsTest, NegativeFloatAndGiantNumbersAreRefused) {
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[-1]", "[0,1]") + "}", 1, "a", "negative"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[1.0]", "[0,1]") + "}", 1, "a", "1.0"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[1e0]", "[0,1]") + "}", 1, "a", "1e0"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[18446744073709551616]", "[0,1]") + "}", 1, "a",
                          "no 64-bit integer"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[1]", "[-0,1]") + "}", 1, "a", "negative"));
}

TEST(SafetensorsTest, OffsetsMustBeAPair) {
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[1]", "[0]") + "}", 1, "a", "1 numbers"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "U8", "[1]", "[0,1,2]") + "}", 1, "a", "more than two"));
  EXPECT_TRUE(
      RefusedWith("{" + Entry("a", "U8", "[1]", "[1,0]") + "}", 1, "a", "before it begins"));
}

TEST(SafetensorsTest, ShapeWhoseProductOverflowsIsRefused) {
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}", 0, "a",
                          "overflows"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "F32", "[9223372036854775808]", "[0,0]") + "}", 0, "a",
                          "overflows"));
}

TEST(SafetensorsTest, ByteRangeMustFitDtypeAndShape) {
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "F32", "[2]", "[0,4]") + "}", 4, "a",
                          "expected 8 bytes for F32 [2], got 4"));
  EXPECT_TRUE(RefusedWith("{" + Entry("a", "F4", "[3]", "[0,2]") + "}", 2, "a", "whole bytes"));
}

TEST(SafetensorsTest, OverlapsHolesAndTrailingBytesAreRefused) {
  const std::string a = Entry("a", "U8", "[4]", "[0,4]");
  EXPECT_TRUE(RefusedWith("{" + a + "," + Entry("b", "U8", "[4]", "[2,6]") + "}", 6, "b",
                          "overlaps tensor 'a'"));
  EXPECT_TRUE(RefusedWith("{" + a + "," + Entry("b", "U8", "[4]", "[0,4]") + "}", 4, "b",
                          "overlaps tensor 'a'"));
  EXPECT_TRUE(
      RefusedWith("{" + a + "," + Entry("b", "U8", "[4]", "[5,9]") + "}", 9, "b", "hole of 1"));
  EXPECT_TRUE(RefusedWith("{" + a + "}", 5, "", "belong to no tensor"));
}

TEST(SafetensorsTest, OffsetsNearTheEndOf64BitsDoNotWrap) {
  EXPECT_TRUE(RefusedWith(
      "{" + Entry("a", "U8", "[1]", "[18446744073709551614,18446744073709551615]") + "}", 1, "a",
      "the file has only 1"));
}

TEST(SafetensorsTest, DeepNestingIsRefusedAtItsFirstLevel) {
  std::string json = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) json += "[";
  EXPECT_TRUE(RefusedWith(json, 0, "a", "got an array"));
  json = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) json += "{\"dtype\":";
  EXPECT_TRUE(RefusedWith(json, 0, "a", "got an object"));
}

TEST(SafetensorsTest, RankNameAndControlCharactersAreLimited) {
  EXPECT_TRUE(
      RefusedWith("{" + Entry("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1,
                  "a", "more than 16"));
  const std::string long_name(kMaxTensorNameBytes + 1, 'n');
  EXPECT_FALSE(Parse("{" + Entry(long_name, "U8", "[1]", "[0,1]") + "}", 1).refusals.empty());
  EXPECT_FALSE(Parse("{" + Entry("\\u0000", "U8", "[1]", "[0,1]") + "}", 1).refusals.empty());
}

TEST(SafetensorsTest, ManyErrorsAreCountedNotListed) {
  std::string json = "{";
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&json, i > 0 ? "," : "", Entry(absl::StrCat("t", i), "U8", "[9]", "[0,1]"));
  }
  EXPECT_EQ(Parse(json + "}", 1).refusals.size(), kMaxListedRefusals + 1);
}

TEST(SafetensorsTest, EveryDtypeOfTheFormatIsRead) {
  for (const char* name :
       {"BOOL", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
        "I16",  "U16", "F16", "BF16",    "I32",     "U32",     "F32",         "F64",
        "I64",  "U64", "C64", "F4",      "F6_E2M3", "F6_E3M2"}) {
    const uint64_t bytes = DtypeBits(*DtypeFromName(name));  // of 8 elements
    const auto parse =
        Parse("{" + Entry("a", name, "[8]", absl::StrCat("[0,", bytes, "]")) + "}", bytes);
    EXPECT_TRUE(parse.refusals.empty()) << name << FormatRefusals(parse.refusals);
  }
}

TEST(SafetensorsWriterTest, WrittenHeaderReadsBackInTheSameLayout) {
  const std::vector<TensorSpec> tensors = {{"z.\"quoted\"\\", Dtype::kF32, {2, 3}},
                                           {"a", Dtype::kBF16, {}},
                                           {"\xC3\xA4", Dtype::kU8, {0}}};
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"line", "a\nb"}};
  const auto header = WriteSafetensorsHeader(tensors, metadata);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->size() % 8, 0u);
  const auto parse = ParseSafetensorsHeader(header->size() + 26, *header);
  ASSERT_TRUE(parse.refusals.empty()) << FormatRefusals(parse.refusals);
  EXPECT_EQ(parse.header.metadata, metadata);
  EXPECT_EQ(parse.header.data_start, header->size());
  ASSERT_EQ(parse.header.tensors.size(), 3u);
  EXPECT_EQ(parse.header.tensors[0].spec, tensors[1]);
  EXPECT_EQ(parse.header.tensors[0].data_begin, header->size() + 24);
  EXPECT_EQ(parse.header.tensors[1].spec, tensors[0]);
  EXPECT_EQ(parse.header.tensors[2].spec, tensors[2]);
}

TEST(SafetensorsWriterTest, BytesAreFixed) {
  const std::vector<TensorSpec> tensors = {{"a", Dtype::kBF16, {64, 128}}};
  EXPECT_EQ(*WriteSafetensorsHeader(tensors, {{"policy_version", "0"}, {"format", "pt"}}),
            WithLength("{\"__metadata__\":{\"format\":\"pt\",\"policy_version\":\"0\"},"
                       "\"a\":{\"dtype\":\"BF16\",\"shape\":[64,128],\"data_offsets\":[0,16384]}}"
                       "    "));
  EXPECT_EQ(*WriteSafetensorsHeader({}, {}), WithLength("{}      "));
}

TEST(SafetensorsWriterTest, WhatTheReaderWouldRefuseIsNotWritten) {
  const auto write = [](std::vector<TensorSpec> tensors) {
    return WriteSafetensorsHeader(tensors, {}).ok();
  };
  EXPECT_FALSE(write({{"a", Dtype::kU8, {1}}, {"a", Dtype::kU8, {1}}}));
  EXPECT_FALSE(write({{"__metadata__", Dtype::kU8, {1}}}));
  EXPECT_FALSE(write({{"\xFF", Dtype::kU8, {1}}}));
  EXPECT_FALSE(write({{"a", Dtype::kU8, {uint64_t{1} << 40, uint64_t{1} << 40}}}));
  EXPECT_FALSE(
      write({{"a", Dtype::kU8, {uint64_t{1} << 63}}, {"b", Dtype::kU8, {uint64_t{1} << 63}}}));
  EXPECT_FALSE(WriteSafetensorsHeader({}, {{"k", "\xFF"}}).ok());
}

}  // namespace
}  // namespace lockstep
