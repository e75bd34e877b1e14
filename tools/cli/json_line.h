#ifndef LOCKSTEP_TOOLS_CLI_JSON_LINE_H_
#define LOCKSTEP_TOOLS_CLI_JSON_LINE_H_

// How `-o json` prints: one value a line.
//
// Example:
//   io.out << JsonLine({{"done", true}}) << "\n";

#include <string>

#include "nlohmann/json.hpp"

namespace lockstep::tools {

// One line, without its end. Text that is not UTF-8 (a peer's name may be anything) is
// replaced, never thrown on.
std::string JsonLine(const nlohmann::json& value);

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_CLI_JSON_LINE_H_
