#ifndef LOCKSTEP_BRIDGE_LOOP_LOG_H_
#define LOCKSTEP_BRIDGE_LOOP_LOG_H_

// The daemon's log: one line an event on stderr, key=value fields, quoted where needed.
//
//   2026-01-02T03:04:05.678Z level=info event=live subject="sampler s1" text="..."
//
// Example:
//   Log log(LogLevel::kInfo);
//   log.Write(LogLevel::kWarning, "refuse", {{"subject", "sampler s3"}, {"text", sentence}});

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::loop {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

std::optional<LogLevel> LogLevelFromName(absl::string_view name);

using LogField = std::pair<absl::string_view, absl::string_view>;

// The line for an event, without its newline; control characters are escaped, so that an
// event is one line whatever a peer sent.
std::string FormatLogLine(absl::Time time, LogLevel level, absl::string_view event,
                          std::initializer_list<LogField> fields);

class Log {
 public:
  explicit Log(LogLevel level) : level_(level) {}

  void Write(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) const;

 private:
  LogLevel level_;
};

}  // namespace lockstep::loop

#endif  // LOCKSTEP_BRIDGE_LOOP_LOG_H_
