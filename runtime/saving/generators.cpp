#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <lockstep/runtime/saving/own/generators.h>

#include <mutex>

namespace lockstep::detail {

std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all = {
      {"cpu", at::detail::getDefaultCPUGenerator()}};
  if (device.is_cuda()) {
    all.emplace_back("cuda", at::globalContext().defaultGenerator(device));
  }
  return all;
}

std::vector<at::Tensor> states_of_generators(c10::Device device) {
  std::vector<at::Tensor> states;
  for (const auto& [name, generator] : generators(device)) {
    states.push_back(generator.get_state());
  }
  return states;
}

void set_states_of_generators(c10::Device device, const std::vector<at::Tensor>& states) {
  size_t next = 0;
  for (auto& [name, generator] : generators(device)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(states[next++]);
  }
}

}  // namespace lockstep::detail
