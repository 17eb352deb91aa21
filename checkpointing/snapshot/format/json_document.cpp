#include <lockstep/checkpointing/snapshot/format/json_document.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <nlohmann/json.hpp>

namespace lockstep::snapshot {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& file, size_t first_byte,
                const JsonLimits& limits) {
  try {
    return detail::bounded_json(text, limits);
  } catch (const detail::BadJson& fault) {
    if (fault.position() > 0) {
      reject_at(file, first_byte + fault.position() - 1, fault.what());
    }
    reject(file, fault.what());
  }
}

std::string render_json(const json& document, const char* what) {
  try {
    return document.dump();
  } catch (const json::exception& error) {
    throw Error(
        c10::str(what, " cannot be written: a name or text in it is not UTF-8: ", error.what()),
        ExitCode::snapshot);
  }
}

}  // namespace lockstep::snapshot
