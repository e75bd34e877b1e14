#ifndef LOCKSTEP_TOOLS_CLI_TABLE_H_
#define LOCKSTEP_TOOLS_CLI_TABLE_H_

// A table of text with aligned columns, for people.
//
// Example:
//   Table table({"VERSION", "STATE", "BYTES"});
//   table.AlignRight(2);
//   table.Add({"3", "live", "2.1 MB"});
//   io.out << table.ToString();

#include <set>
#include <string>
#include <vector>

namespace lockstep::tools {

class Table {
 public:
  explicit Table(std::vector<std::string> header);

  // Numbers read better so.
  void AlignRight(size_t column);

  // Missing cells are empty; cells beyond the header are dropped. Colour codes (Paint) take no
  // width; an empty cell is shown as "-".
  void Add(std::vector<std::string> row);

  bool empty() const { return rows_.empty(); }

  // The header and the rows, two spaces between columns, none at the end of a line.
  std::string ToString() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::set<size_t> right_;
};

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_TABLE_H_
