#include "shadow_memory.h"

#include <algorithm>

namespace fake_cuda {
namespace {

constexpr uint32_t kIsSet = 1u << 31;

}  // namespace

std::vector<Use> ReaderSets::uses_of(uint32_t readers) const {
  if (readers == 0) {
    return {};
  }
  if ((readers & kIsSet) != 0) {
    return sets_[readers & ~kIsSet];
  }
  return {Use(readers >> 4, readers & 15)};
}

uint32_t ReaderSets::number_of(const std::vector<Use>& uses) {
  if (uses.empty()) {
    return 0;
  }
  if (uses.size() == 1) {
    return uses[0].piece() << 4 | uses[0].bytes();
  }
  const auto [place, is_new] =
      numbers_.try_emplace(uses, static_cast<uint32_t>(sets_.size()) | kIsSet);
  if (is_new) {
    sets_.push_back(uses);
  }
  return place->second;
}

void ShadowMemory::forget(uintptr_t begin, size_t bytes) {
  // Allocations share no pages; of registered memory, a neighbour's last uses may go too.
  const uintptr_t first = begin / kPage;
  const uintptr_t end = (begin + bytes + kPage - 1) / kPage;
  last_page_ = nullptr;
  if (end - first > pages_.size()) {
    std::erase_if(pages_,
                  [&](const auto& page) { return page.first >= first && page.first < end; });
    return;
  }
  for (uintptr_t number = first; number < end; ++number) {
    pages_.erase(number);
  }
}

void ShadowMemory::join_equal_cells(Page& page) {
  const Cell first = page.cells->front();
  if (std::all_of(page.cells->begin(), page.cells->end(),
                  [&](const Cell& cell) { return cell == first; })) {
    page.all = first;
    page.cells.reset();
  }
}

ShadowMemory::Page& ShadowMemory::page_of(uintptr_t address) {
  const uintptr_t number = address / kPage;
  if (last_page_ == nullptr || number != last_number_) {
    last_page_ = &pages_[number];  // stays in its place when others come
    last_number_ = number;
  }
  return *last_page_;
}

}  // namespace fake_cuda
