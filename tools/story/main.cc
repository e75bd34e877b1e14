// Plays the story of tools/story/story.h; called by tools/demo, which builds the binaries and
// unpacks the traces.
//
//   story --lockstep BIN --lockstepd BIN --work DIR [--keep] qwen3_5_dense|glm_moe_dsa TRACE_DIR

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/cli/args.h"
#include "tools/story/cast.h"
#include "tools/story/story.h"

namespace lockstep::tools {
namespace {

int Main(const std::vector<std::string>& words) {
  constexpr FlagSpec kFlags[] = {{"--lockstep", "BIN", "the CLI"},
                                 {"--lockstepd", "BIN", "the bridge"},
                                 {"--work", "DIR", "an empty, owner-only folder"},
                                 {"--keep", "", "leave everything running"}};
  const absl::StatusOr<Args> args = Args::Parse(words, kFlags, 2, 2);
  if (!args.ok()) {
    std::cerr << "story: " << args.status().message() << "\n" << FlagHelp(kFlags);
    return 2;
  }
  absl::StatusOr<StoryOptions> options = CastFor(args->words()[0]);
  if (!options.ok()) {
    std::cerr << "story: " << options.status().message() << "\n";
    return 2;
  }
  options->trace = args->words()[1];
  options->lockstep = args->TextOr("--lockstep", "lockstep");
  options->lockstepd = args->TextOr("--lockstepd", "lockstepd");
  options->work = args->TextOr("--work", "");
  options->keep = args->Has("--keep");
  options->progress = [](const std::string& line) { std::cerr << "  " << line << std::endl; };
  Story story(*std::move(options));
  const absl::Status played = story.Play();
  std::cout << ReportText(story.report()) << std::flush;
  if (!played.ok()) {
    std::cerr << "story: " << played.message() << "\n";
    return 1;
  }
  return story.report().AllHeld() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::tools

int main(int argc, char** argv) {
  return lockstep::tools::Main(std::vector<std::string>(argv + 1, argv + argc));
}
