#include "tools/cli/json_line.h"

namespace lockstep::tools {

std::string JsonLine(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep::tools
