#ifndef LOCKSTEP_TOOLS_STORY_CAST_H_
#define LOCKSTEP_TOOLS_STORY_CAST_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/story/story.h"

namespace lockstep::tools {

// What each recorded run is played with: who states which contract and what is expected.
// Binaries and folders are the caller's to fill in. NotFound lists the runs there are.
absl::StatusOr<StoryOptions> CastFor(absl::string_view trace);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_STORY_CAST_H_
