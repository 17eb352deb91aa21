#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::detail {

/// What a failed device must not do: hold up the other ranks, or end the process in a destructor.
/// The device belongs to the process, and so do these functions. Threads: any.

/// From now on hosts that wait for each other look at this device, too.
void watch_device(c10::Device device);
/// Throws what the watched device reports, about every 100 ms; never waits. Costs one load where no
/// device is watched.
void look_at_device();
/// The same at once. To be called before LibTorch's allocator by threads beside the program's: the
/// first call of the allocator that finds the device failed throws, the second one ends the process
/// (LibTorch 2.11 has lost an event of it by then).
void look_at_device_now();
/// Stops look_at_device() while it exists: during a capture no device may be asked.
class DeviceUnwatched {
 public:
  DeviceUnwatched();
  ~DeviceUnwatched();
  DeviceUnwatched(const DeviceUnwatched&) = delete;
  DeviceUnwatched& operator=(const DeviceUnwatched&) = delete;
};

/// What this process tells its peers on one communicator when it leaves it. The object that it
/// belongs to keeps it.
using Leave = std::function<void(const std::exception_ptr& error, const std::string& cause)>;
std::shared_ptr<Leave> on_leaving(Leave leave);
/// Leaves all communicators of this process because of `error`, unless every rank throws it or it
/// comes from a communicator. The peers are told the rank and the text, so that they do not wait
/// for it; later calls here throw a CommunicationError with the text.
void leave_because(const std::exception_ptr& error);
/// The same, but only if the device has failed, or cannot run what it should.
void leave_if_device_failed(const std::exception_ptr& error);

/// The same page-locked tensor, whose memory is given back without an exception. Once the device
/// has failed LibTorch's allocator throws where such a tensor is destroyed, which ends the process;
/// then the memory stays instead. All page-locked memory of lockstep comes from here.
at::Tensor released_quietly(at::Tensor page_locked);
/// Host memory for copies to or from `device`: page-locked, unless it is the CPU.
at::Tensor host_memory_for(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype);
/// A copy in host_memory_for() the tensor's device, complete when this returns.
at::Tensor copy_on_host(const at::Tensor& tensor);

}  // namespace lockstep::detail
