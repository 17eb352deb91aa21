#include <lockstep/collectives/host/shared_buffers.h>

#include <ATen/ops/from_blob.h>

#include <iterator>

namespace lockstep::detail {

at::Tensor SharedBuffers::add(std::vector<std::shared_ptr<SharedMemory>> memory, int rank,
                              int64_t numel, at::ScalarType dtype) {
  auto buffer = std::make_shared<Buffer>(Buffer{next_id_++, rank, std::move(memory)});
  char* data = buffer->memory[static_cast<size_t>(rank)]->data();
  // Removes freed buffers, whose addresses may lie inside the new one.
  for (auto entry = buffers_.begin(); entry != buffers_.end();) {
    entry = entry->second.expired() ? buffers_.erase(entry) : std::next(entry);
  }
  buffers_[data] = buffer;
  return at::from_blob(
      data, {numel}, [buffer](void*) {}, at::TensorOptions().dtype(dtype));
}

bool SharedBuffers::find(const char* data, size_t bytes, Place& place) {
  auto next = buffers_.upper_bound(data);
  if (next == buffers_.begin()) {
    return false;
  }
  const auto found = std::prev(next);
  const std::shared_ptr<Buffer> buffer = found->second.lock();
  const size_t offset = static_cast<size_t>(data - found->first);
  if (buffer == nullptr ||
      offset + bytes > buffer->memory[static_cast<size_t>(buffer->rank)]->bytes()) {
    return false;
  }
  place = {buffer->id, static_cast<int64_t>(offset), {}};
  for (const auto& memory : buffer->memory) {
    place.copies.push_back(memory->data() + offset);
  }
  return true;
}

}  // namespace lockstep::detail
