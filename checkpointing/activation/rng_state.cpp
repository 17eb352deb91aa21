#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace lockstep::activation {

struct RngState::Host {
  bool operator==(const Host& other) const {
    const at::mt19937_data_pod ours = engine.data();
    const at::mt19937_data_pod theirs = other.engine.data();
    return ours.left_ == theirs.left_ && ours.next_ == theirs.next_ &&
           ours.state_ == theirs.state_ && next_float_normal == other.next_float_normal &&
           next_double_normal == other.next_double_normal;
  }
  at::mt19937 engine;
  std::optional<float> next_float_normal;
  std::optional<double> next_double_normal;
};

namespace {

at::CPUGeneratorImpl& host_generator() {
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  return *at::check_generator<at::CPUGeneratorImpl>(generator);
}

std::vector<int> devices_in_use() {
  std::vector<int> devices;
  if (!at::globalContext().hasCUDA()) {
    return devices;
  }
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(at::kCUDA);
  for (int device = 0; device < hooks.deviceCount(); ++device) {
    if (hooks.hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) {
      devices.push_back(device);
    }
  }
  return devices;
}

at::Generator device_generator(int device) {
  return at::globalContext().defaultGenerator(
      at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

RngState RngState::current() {
  RngState state;
  at::CPUGeneratorImpl& host = host_generator();
  {
    const std::lock_guard<std::mutex> lock(host.mutex_);
    state.host_ = std::make_shared<const Host>(
        Host{host.engine(), host.next_float_normal_sample(), host.next_double_normal_sample()});
  }
  for (int device : devices_in_use()) {
    at::Generator generator = device_generator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    state.devices_.emplace_back(device, generator.get_state());
  }
  return state;
}

void RngState::restore() const {
  at::CPUGeneratorImpl& host = host_generator();
  {
    const std::lock_guard<std::mutex> lock(host.mutex_);
    host.set_engine(host_->engine);
    host.set_next_float_normal_sample(host_->next_float_normal);
    host.set_next_double_normal_sample(host_->next_double_normal);
  }
  for (const auto& [device, saved] : devices_) {
    at::Generator generator = device_generator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(saved);
  }
}

bool RngState::operator==(const RngState& other) const {
  return *host_ == *other.host_ &&
         std::equal(devices_.begin(), devices_.end(), other.devices_.begin(), other.devices_.end(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first && at::equal(a.second, b.second);
                    });
}

RngGuard::~RngGuard() {
  try {
    outer_.restore();
  } catch (const c10::Error&) {
    // the device has failed; the work under this guard throws that
  }
}

}  // namespace lockstep::activation
