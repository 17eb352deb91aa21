#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/process/impl/failed_saves.h>

#include <map>
#include <mutex>
#include <utility>

namespace lockstep::detail {
namespace {

struct FailedSaves {
  std::mutex mutex;
  std::map<std::string, Error> by_folder;
};

FailedSaves& of_this_process() {
  static FailedSaves saves;
  return saves;
}

}  // namespace

void note_save(const std::string& folder, const std::optional<Error>& error) {
  FailedSaves& saves = of_this_process();
  const std::lock_guard<std::mutex> lock(saves.mutex);
  saves.by_folder.erase(folder);
  if (error) {
    saves.by_folder.emplace(folder, *error);
  }
}

std::optional<Error> take_failed_save() {
  FailedSaves& saves = of_this_process();
  const std::lock_guard<std::mutex> lock(saves.mutex);
  const auto failed = std::exchange(saves.by_folder, {});
  return failed.empty() ? std::nullopt : std::make_optional(failed.begin()->second);
}

}  // namespace lockstep::detail
