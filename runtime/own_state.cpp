// What each rank saves for itself: its random numbers, what it feeds back, the loop's variables.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <lockstep/runtime/training_state.h>

#include <algorithm>
#include <mutex>

namespace lockstep {
namespace {

constexpr char kRandom[] = "random";
constexpr char kResiduals[] = "residuals";

/// This rank's random generators by name.
std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all = {
      {"cpu", at::detail::getDefaultCPUGenerator()}};
  if (device.is_cuda()) {
    all.emplace_back("cuda", at::globalContext().defaultGenerator(device));
  }
  return all;
}

}  // namespace

void TrainingState::add_own(snapshot::Content& content) {
  for (const auto& [name, generator] : generators(parts_.runtime.device())) {
    content.add_own(kRandom, name, generator.get_state());
  }
  const std::vector<at::Tensor> residuals = parts_.step.residuals();
  for (size_t b = 0; b < residuals.size(); ++b) {
    content.add_own(kResiduals, std::to_string(b), residuals[b]);
  }
  parts_.loop.save(content);
}

void TrainingState::load_random(const Snapshot& saved, std::vector<std::string>& notes) {
  const int ranks = parts_.runtime.size();
  if (saved.manifest().world_size != ranks) {
    parts_.runtime.seed_ranks(parts_.step.updates());
    notes.push_back(c10::str("saved by ", saved.manifest().world_size, " ranks, goes on with ",
                             ranks, ": each gets a new stream of random numbers"));
    return;
  }
  for (auto& [name, generator] : generators(parts_.runtime.device())) {
    const std::vector<std::string> names = saved.own_names(kRandom, parts_.runtime.rank());
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(saved.read_own(kRandom, parts_.runtime.rank(), name));
    } else {
      notes.push_back("the random numbers of " + name + " start anew; none were saved");
    }
  }
}

void TrainingState::load_residuals(const Snapshot& saved, std::vector<std::string>& notes) {
  const std::vector<at::Tensor> residuals = parts_.step.residuals();
  if (residuals.empty()) {
    return;
  }
  const bool same_ranks = saved.manifest().world_size == parts_.runtime.size();
  const size_t there = same_ranks ? saved.own_names(kResiduals, parts_.runtime.rank()).size() : 0;
  for (size_t b = 0; b < residuals.size(); ++b) {
    if (there == residuals.size()) {
      residuals[b].copy_(saved.read_own(kResiduals, parts_.runtime.rank(), std::to_string(b)));
    } else {
      residuals[b].zero_();
    }
  }
  if (there != residuals.size()) {
    notes.emplace_back("error feedback starts anew: there is none of as many ranks and buckets");
  }
}

}  // namespace lockstep
