#include "tools/cli/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lockstep::tools {
namespace {

constexpr size_t kGap = 2;

// Columns on a terminal: UTF-8 code points, colour codes not counted.
size_t Width(const std::string& text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++width;
  }
  return width;
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::AlignRight(size_t column) { right_.insert(column); }

void Table::Add(std::vector<std::string> row) {
  row.resize(header_.size());
  for (std::string& cell : row) {
    if (cell.empty()) cell.push_back('-');
  }
  rows_.push_back(std::move(row));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < header_.size(); ++column) {
    size_t width = Width(header_[column]);
    for (const auto& row : rows_) width = std::max(width, Width(row[column]));
    widths.push_back(width);
  }
  std::string text;
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string fill(widths[column] - Width(row[column]), ' ');
      const bool right = right_.contains(column);
      absl::StrAppend(&line, column == 0 ? "" : std::string(kGap, ' '), right ? fill : "",
                      row[column], right ? "" : fill);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  };
  append(header_);
  for (const auto& row : rows_) append(row);
  return text;
}

}  // namespace lockstep::tools
