#include "policy/nearest.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kMaxSuggestions = 3;
// Longer strings are cut before the quadratic distance: names are under 80 characters.
constexpr size_t kMaxCompared = 128;

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> NearestNames(absl::string_view unknown,
                                      const std::vector<std::string>& known) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& name : known) {
    ranked.emplace_back(EditDistance(unknown.substr(0, kMaxCompared),
                                     absl::string_view(name).substr(0, kMaxCompared)),
                        name);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> nearest;
  for (const auto& [distance, name] : ranked) {
    if (nearest.size() == kMaxSuggestions) break;
    nearest.push_back(name);
  }
  return nearest;
}

}  // namespace lockstep
