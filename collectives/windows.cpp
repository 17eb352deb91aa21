#include <lockstep/collectives/windows.h>

#include <ATen/ops/from_blob.h>

namespace lockstep {

at::Tensor Windows::add(std::vector<std::shared_ptr<SharedMemory>> memory, int rank, int64_t numel,
                        at::ScalarType dtype) {
  auto window = std::make_shared<Window>(Window{next_id_++, rank, std::move(memory)});
  char* data = window->memory[static_cast<size_t>(rank)]->data();
  // Addresses of windows that are gone may lie inside the new one.
  for (auto entry = windows_.begin(); entry != windows_.end();) {
    entry = entry->second.expired() ? windows_.erase(entry) : std::next(entry);
  }
  windows_[data] = window;
  return at::from_blob(
      data, {numel}, [window](void*) {}, at::TensorOptions().dtype(dtype));
}

bool Windows::find(const char* data, size_t bytes, Place& place) {
  auto next = windows_.upper_bound(data);
  if (next == windows_.begin()) {
    return false;
  }
  const auto found = std::prev(next);
  const std::shared_ptr<Window> window = found->second.lock();
  const size_t offset = static_cast<size_t>(data - found->first);
  if (window == nullptr ||
      offset + bytes > window->memory[static_cast<size_t>(window->rank)]->bytes()) {
    return false;
  }
  place = {window->id, static_cast<int64_t>(offset), {}};
  for (const auto& memory : window->memory) {
    place.copies.push_back(memory->data() + offset);
  }
  return true;
}

}  // namespace lockstep
