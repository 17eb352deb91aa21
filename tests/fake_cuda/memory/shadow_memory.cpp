#include "shadow_memory.h"

#include <algorithm>

namespace fake_cuda {
std::vector<Use> UseSets::uses_of(uint32_t number) const {
  if (number == 0) {
    return {};
  }
  return is_set(number) ? set_of(number) : std::vector<Use>{use_of(number)};
}

uint32_t UseSets::number_of(const std::vector<Use>& uses) {
  if (uses.size() <= 1) {
    return uses.empty() ? 0 : number_of(uses[0]);
  }
  const uint32_t next = static_cast<uint32_t>(sets_.size()) | 1u << 31;
  const auto [place, is_new] = numbers_.try_emplace(uses, next);
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
