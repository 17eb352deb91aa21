// What LibTorch asks a device of type CUDA: is it there, its generators, its page-locked memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <mutex>

#include "memory.h"
#include "random.h"

namespace lockstep::pretend {
namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(at::Generator host)
      : GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        host_(std::move(host)) {}
  const at::Generator& host() const { return host_; }

  void set_current_seed(uint64_t seed) override { host_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host_.set_offset(offset); }
  uint64_t get_offset() const override { return host_.get_offset(); }
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override { return at::Generator(host_).seed(); }
  void set_state(const c10::TensorImpl& state) override {
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  Generator* clone_impl() const override { return new Generator(host_.clone()); }

  at::Generator host_;
};

at::Generator new_generator() {
  return at::make_generator<Generator>(at::detail::createCPUGenerator());
}

const at::Generator& default_generator() {
  static const at::Generator* const own = new at::Generator(new_generator());
  return *own;
}

}  // namespace

at::Generator host_generator(const std::optional<at::Generator>& of_device) {
  const at::Generator& generator =
      of_device.has_value() && of_device->defined() ? *of_device : default_generator();
  TORCH_CHECK(generator.device() == kDevice, "expected a generator of ", kDevice, ", found one of ",
              generator.device());
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host();
}

void with_generator(const std::function<void()>& call) {
  at::Generator host = at::detail::getDefaultCPUGenerator();
  at::Generator own = host_generator(std::nullopt);
  const at::Tensor before = host.get_state();
  host.set_state(own.get_state());
  call();
  own.set_state(host.get_state());
  host.set_state(before);
}

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs /*none*/) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override {
    return new_generator();
  }
  c10::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(is_device_address(data), "this is no memory of the device");
    return kDevice;
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CUDA);
  }
  void deviceSynchronize(c10::DeviceIndex /*device*/) const override { wait_for(current_stream()); }
};

}  // namespace lockstep::pretend

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, lockstep::pretend::Hooks)
}  // namespace at
