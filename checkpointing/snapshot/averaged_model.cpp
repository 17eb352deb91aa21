#include <lockstep/checkpointing/snapshot/impl/averaged_model.h>
#include <lockstep/collectives/check.h>

#include <algorithm>

namespace lockstep::snapshot {

AveragedModel::AveragedModel(const Snapshot& saved)
    : model_(saved.section("model")), optimizer_(saved.section("optimizer")) {
  const auto& tied = saved.manifest().tied;
  if (const auto found = tied.find("model"); found != tied.end()) {
    tied_ = found->second;
  }
  const std::vector<std::string> names = model_.names();
  LOCKSTEP_CHECK_CODE(
      std::any_of(names.begin(), names.end(),
                  [&](const std::string& name) { return !average_of(name).empty(); }),
      ExitCode::snapshot, saved.path(),
      " holds no moving averages: its run was trained without TrainerOptions::ema; take its "
      "weights instead");
}

std::string AveragedModel::average_of(const std::string& name) const {
  const auto tied = tied_.find(name);
  for (const std::string& stored : {name, tied != tied_.end() ? tied->second : name}) {
    if (optimizer_.has(stored + kAverage)) {
      return stored + kAverage;
    }
  }
  return "";
}

at::ScalarType AveragedModel::dtype(const std::string& name) const {
  const std::string average = average_of(name);
  return average.empty() ? model_.dtype(name) : optimizer_.dtype(average);
}

at::Tensor AveragedModel::read(const std::string& name) const {
  const std::string average = average_of(name);
  return average.empty() ? model_.read(name) : optimizer_.read(average);
}

}  // namespace lockstep::snapshot
