#include "bridge/loop/log.h"

#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lockstep::loop {
namespace {

constexpr std::pair<LogLevel, absl::string_view> kLevels[] = {
    {LogLevel::kDebug, "debug"},
    {LogLevel::kInfo, "info"},
    {LogLevel::kWarning, "warning"},
    {LogLevel::kError, "error"},
};

bool IsBare(absl::string_view value) {
  if (value.empty()) return false;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  }
  return true;
}

}  // namespace

std::optional<LogLevel> LogLevelFromName(absl::string_view name) {
  for (const auto& [level, known] : kLevels) {
    if (known == name) return level;
  }
  return std::nullopt;
}

std::string FormatLogLine(absl::Time time, LogLevel level, absl::string_view event,
                          std::initializer_list<LogField> fields) {
  std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()),
                   " level=", kLevels[static_cast<int>(level)].second, " event=", event);
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&line, " ", key, "=");
    if (IsBare(value)) {
      absl::StrAppend(&line, value);
    } else {
      absl::StrAppend(&line, "\"", absl::Utf8SafeCEscape(value), "\"");
    }
  }
  return line;
}

void Log::Write(LogLevel level, absl::string_view event,
                std::initializer_list<LogField> fields) const {
  if (level < level_) return;
  const std::string line = absl::StrCat(FormatLogLine(absl::Now(), level, event, fields), "\n");
  fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lockstep::loop
