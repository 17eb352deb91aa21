#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/outcome.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenLooks(100);
constexpr int kNone = -1;

std::atomic<int> watched{kNone};  // a CUDA device's index
std::atomic<int> unwatched{0};
std::atomic<Clock::rep> next_look{0};

struct Leaves {
  std::mutex mutex;
  std::vector<std::weak_ptr<Leave>> all;

  static Leaves& of_process() {
    static auto* const leaves = new Leaves;
    return *leaves;
  }
  std::vector<std::shared_ptr<Leave>> present() {
    const std::lock_guard<std::mutex> locked(mutex);
    std::vector<std::shared_ptr<Leave>> found;
    for (const std::weak_ptr<Leave>& each : all) {
      if (auto leave = each.lock()) {
        found.push_back(std::move(leave));
      }
    }
    return found;
  }
};

/// Of the allocator of page-locked memory; a process has one.
std::atomic<c10::DeleterFnPtr> give_back{nullptr};

void give_back_quietly(void* context) {
  try {
    give_back.load()(context);
  } catch (const std::exception&) {
    return;  // the device has failed: the memory stays
  }
}

}  // namespace

void watch_device(c10::Device device) {
  watched = device.index();
}

void look_at_device() {
  if (watched.load(std::memory_order_relaxed) == kNone) {
    return;
  }
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (now >= next_look.load()) {
    next_look = now + Clock::duration(kBetweenLooks).count();
    look_at_device_now();
  }
}

void look_at_device_now() {
  const int index = watched.load(std::memory_order_relaxed);
  if (index == kNone || unwatched.load() > 0) {
    return;
  }
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.queryStream(guard.getStream(device));
}

DeviceUnwatched::DeviceUnwatched() {
  ++unwatched;
}
DeviceUnwatched::~DeviceUnwatched() {
  --unwatched;
}

std::shared_ptr<Leave> on_leaving(Leave leave) {
  auto kept = std::make_shared<Leave>(std::move(leave));
  Leaves& leaves = Leaves::of_process();
  const std::lock_guard<std::mutex> locked(leaves.mutex);
  const auto gone = [](const std::weak_ptr<Leave>& each) { return each.expired(); };
  leaves.all.erase(std::remove_if(leaves.all.begin(), leaves.all.end(), gone), leaves.all.end());
  leaves.all.push_back(kept);
  return kept;
}

void leave_because(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const SharedError&) {
    return;
  } catch (const CommunicationError&) {
    return;
  } catch (const PeerStepFailed&) {  // the peers have said it
    return;
  } catch (...) {
  }
  const Error found = as_error(error);
  const std::string text = found.what();
  const auto failure = std::make_exception_ptr(CommunicationError(text, found.code()));
  for (const std::shared_ptr<Leave>& leave : Leaves::of_process().present()) {
    (*leave)(failure, text.substr(0, text.find('\n')));
  }
}

void leave_if_device_failed(const std::exception_ptr& error) {
  const ExitCode code = as_error(error).code();
  if (code == ExitCode::peer_lost || code == ExitCode::environment) {
    leave_because(error);
  }
}

at::Tensor released_quietly(at::Tensor page_locked) {
  c10::DataPtr& data = page_locked.storage().unsafeGetStorageImpl()->mutable_data_ptr();
  const c10::DeleterFnPtr found = data.get_deleter();
  c10::DeleterFnPtr none = nullptr;
  if (give_back.compare_exchange_strong(none, found) || none == found) {
    std::ignore = data.compare_exchange_deleter(found, &give_back_quietly);
  }
  return page_locked;
}

at::Tensor host_memory_for(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  return device.is_cpu() ? at::empty(sizes, options)
                         : released_quietly(at::empty(sizes, options.pinned_memory(true)));
}

at::Tensor copy_on_host(const at::Tensor& tensor) {
  return host_memory_for(tensor.device(), tensor.sizes(), tensor.scalar_type()).copy_(tensor);
}

}  // namespace lockstep::detail
