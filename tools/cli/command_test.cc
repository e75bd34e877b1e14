#include "tools/cli/command.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/run_testing.h"
#include "tools/cli/table.h"
#include "tools/cli/version_command.h"

namespace lockstep::tools {
namespace {

std::vector<Command> SomeCommands() {
  return {
      {.name = "weigh",
       .words = "FILE",
       .min_words = 1,
       .max_words = 1,
       .help = "weighs",
       .flags = {{"--unit", "U", "kg or lb"}},
       .run = [](const Args& args, Io& io) -> absl::StatusOr<int> {
         io.out << args.words()[0] << " " << args.TextOr("--unit", "kg")
                << (io.format == Format::kJson ? " json" : "");
         return kExitDegraded;
       }},
      {.name = "weigh twice",
       .help = "weighs again",
       .run = [](const Args&, Io&) -> absl::StatusOr<int> { return kExitConverged; }},
      {.name = "scale check", .help = "checks", .run = [](const Args&, Io&) -> absl::StatusOr<int> {
         return absl::UnavailableError("no scale there; plug it in");
       }}};
}

Ran Try(const std::vector<std::string>& words) { return RunCommand(words, SomeCommands()); }

TEST(DispatchTest, TheLongestNameWinsAndItsExitCodeIsTheProcesss) {
  EXPECT_EQ(Try({"weigh", "a", "--unit", "lb"}).out, "a lb");
  EXPECT_EQ(Try({"weigh", "a"}).code, kExitDegraded);
  EXPECT_EQ(Try({"weigh", "twice"}).code, kExitConverged);
}

TEST(DispatchTest, OutputFormatIsUnderstoodByEveryCommandAnywhereOnTheLine) {
  EXPECT_EQ(Try({"weigh", "-o", "json", "a"}).out, "a kg json");
  const Ran wrong = Try({"weigh", "a", "-o", "xml"});
  EXPECT_EQ(wrong.code, kExitUsage);
  EXPECT_TRUE(absl::StrContains(wrong.err, "table, wide, json")) << wrong.err;
}

TEST(DispatchTest, UnknownCommandNamesTheNearestAndExitsWithUsage) {
  const Ran ran = Try({"wiegh", "a"});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_TRUE(absl::StrContains(ran.err, "nearest: weigh")) << ran.err;
  EXPECT_EQ(ran.out, "");
}

TEST(DispatchTest, AGroupsNameAloneListsTheGroup) {
  const Ran ran = Try({"scale"});
  EXPECT_EQ(ran.code, kExitUsage);
  EXPECT_TRUE(absl::StrContains(ran.err, "scale check")) << ran.err;
  EXPECT_EQ(Try({"help", "scale"}).code, kExitConverged);
  EXPECT_TRUE(absl::StrContains(Try({"scale", "--help"}).out, "scale check"));
}

TEST(DispatchTest, HelpIsDataAndExitsWithZero) {
  EXPECT_TRUE(absl::StrContains(Try({"help"}).out, "scale check"));
  EXPECT_EQ(Try({"help"}).code, kExitConverged);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"weigh", "--help"}, {"help", "weigh"}, {"weigh", "-h"}, {"weigh", "x", "--help"}}) {
    const Ran ran = Try(words);
    EXPECT_EQ(ran.code, kExitConverged);
    EXPECT_TRUE(absl::StrContains(ran.out, "--unit U")) << ran.out;
    EXPECT_TRUE(absl::StrContains(ran.out, "weigh FILE")) << ran.out;
  }
  EXPECT_EQ(Try({}).code, kExitUsage);
}

TEST(DispatchTest, AnErrorNamesTheCommandAndGivesItsExitCode) {
  const Ran ran = Try({"scale", "check"});
  EXPECT_EQ(ran.code, kExitUnreachable);
  EXPECT_EQ(ran.err, "lockstep scale check: no scale there; plug it in\n");
  EXPECT_EQ(Try({"weigh"}).code, kExitUsage);
  EXPECT_EQ(Try({"weigh", "a", "--nuit", "kg"}).code, kExitUsage);
}

TEST(DispatchTest, EveryErrorHasItsExitCode) {
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError("")), kExitUsage);
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("")), kExitUsage);
  EXPECT_EQ(ExitCodeFor(absl::UnavailableError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeFor(absl::FailedPreconditionError("")), kExitRefused);
  EXPECT_EQ(ExitCodeFor(absl::PermissionDeniedError("")), kExitRefused);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("")), kExitTimedOut);
  EXPECT_EQ(ExitCodeFor(absl::ResourceExhaustedError("")), kExitDegraded);
}

TEST(DispatchTest, AnAnswerThatCannotBeWrittenIsAnError) {
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);
  Io io{out, err};
  const std::vector<Command> commands = SomeCommands();
  EXPECT_EQ(RunCli({"weigh", "a"}, commands, io), kExitDegraded);
  EXPECT_TRUE(absl::StrContains(err.str(), "standard output")) << err.str();
}

TEST(TableTest, ColumnsAreAlignedAndColourTakesNoWidth) {
  std::ostringstream out, err;
  Io io{out, err};
  io.color = true;
  Table table({"NAME", "N"});
  table.AlignRight(1);
  table.Add({Paint(io, Color::kRed, "é"), "10"});
  table.Add({"", "9", "beyond"});
  EXPECT_EQ(table.ToString(), "NAME   N\n\x1b[31mé\x1b[0m     10\n-      9\n");
  io.color = false;
  EXPECT_EQ(Paint(io, Color::kRed, "x"), "x");
}

TEST(VersionTest, JsonSaysWhatTheBuildSpeaks) {
  const Ran ran = RunCommand({"version", "-o", "json"}, VersionCommands());
  EXPECT_EQ(ran.code, kExitConverged);
  EXPECT_EQ(ran.Json()["version"], kCliVersion);
  EXPECT_TRUE(ran.Json()["protocol"].is_number());
  EXPECT_TRUE(ran.Json()["cuda"].is_boolean());
}

}  // namespace
}  // namespace lockstep::tools
