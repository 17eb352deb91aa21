#pragma once

#include <c10/util/Exception.h>
#include <lockstep/inputs/exported/archive/archive.h>
#include <lockstep/inputs/exported/archive/json_values.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::exported {

/// Returns action(). If the action throws for unexpected JSON, throws Error (exit code data) with
/// the file and `what` was read.
template <typename Action>
auto parsed(const std::string& path, const std::string& what, const Action& action)
    -> decltype(action()) {
  try {
    return action();
  } catch (const Malformed& error) {
    refuse(path, what, ": ", error.what());
  } catch (const nlohmann::json::exception& error) {
    refuse(path, what, " is damaged or of another schema: ", error.what());
  } catch (const c10::Error& error) {
    refuse(path, what, " is damaged: ", error.what_without_backtrace());
  }
}

}  // namespace lockstep::exported
