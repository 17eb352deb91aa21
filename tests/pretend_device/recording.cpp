#include "recording.h"

#include <ATen/core/Tensor.h>

#include <mutex>
#include <optional>

#include "memory.h"
#include "random.h"

namespace lockstep::pretend {
namespace {

std::mutex mutex;
std::optional<Recording> under_way;

Recording finish() {
  const std::lock_guard<std::mutex> locked(mutex);
  Recording recording = std::move(*under_way);
  under_way.reset();
  return recording;
}

}  // namespace

bool is_recording() {
  const std::lock_guard<std::mutex> locked(mutex);
  return under_way.has_value();
}

void note(std::function<void()> work) {
  const std::lock_guard<std::mutex> locked(mutex);
  if (under_way.has_value()) {
    under_way->push_back(std::move(work));
  }
}

void perform(std::function<void()> work) {
  work();
  note(std::move(work));
}

Recording record(const std::function<void()>& work) {
  at::Generator generator = host_generator(std::nullopt);
  const at::Tensor numbers = generator.get_state();
  const SavedMemory memory;
  {
    const std::lock_guard<std::mutex> locked(mutex);
    TORCH_CHECK(!under_way.has_value(), "one recording at a time");
    under_way.emplace();
  }
  try {
    work();
  } catch (...) {
    finish();
    generator.set_state(numbers);
    throw;
  }
  Recording recording = finish();
  generator.set_state(numbers);
  return recording;
}

void refuse_to_wait() {
  TORCH_CHECK(!is_recording(), "operation not permitted when stream is capturing");
}

}  // namespace lockstep::pretend
