#include <ATen/ops/empty.h>
#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>
#include <lockstep/collectives/check.h>

#include <functional>
#include <numeric>
#include <utility>

namespace lockstep::snapshot {
namespace {

/// An address that tensors of one memory have in common.
const void* place_of(const at::Tensor& tensor) {
  return tensor.is_meta() ? tensor.storage().unsafeGetStorageImpl() : tensor.const_data_ptr();
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 && place_of(a) == place_of(b) && a.sizes() == b.sizes() &&
         (!a.is_meta() || a.storage_offset() == b.storage_offset()) && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

}  // namespace

Content& Content::text(const std::string& name, std::string value) {
  LOCKSTEP_CHECK(texts_.emplace(name, std::move(value)).second, "the text \"", name,
                 "\" was given twice to one snapshot");
  return *this;
}

Content::Section& Content::section(const std::string& name, const std::string& tensor_name,
                                   const at::Tensor& tensor) {
  LOCKSTEP_CHECK(!name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") ==
                                      std::string::npos,
                 "a section of a snapshot is a word of [a-z0-9_], found \"", name, "\"");
  require_storable(tensor_name, tensor);
  return sections_[name];
}

void Content::take_name(Section& section, const std::string& name) {
  LOCKSTEP_CHECK(section.names.insert(name).second, "the name \"", name,
                 "\" was given twice to one section of a snapshot");
}

Content& Content::add(const std::string& section_name, const std::string& name,
                      const at::Tensor& tensor) {
  add_whole(section(section_name, name, tensor), name, tensor);
  return *this;
}

Content& Content::add_later(const std::string& section_name, const std::string& name,
                            const at::Tensor& outline) {
  LOCKSTEP_CHECK(outline.is_meta(), "the outline of \"", name, "\" has memory; use add()");
  const std::vector<int64_t> empty(static_cast<size_t>(outline.dim()), 0);
  add_whole(section(section_name, name, at::empty(empty, outline.scalar_type())), name, outline);
  return *this;
}

Content& Content::fetch_by(const std::string& section_name,
                           std::function<void(const Take& take)> fetch) {
  sections_[section_name].fetch = std::move(fetch);
  return *this;
}

void Content::add_whole(Section& section, const std::string& name, const at::Tensor& tensor) {
  take_name(section, name);
  const void* memory = place_of(tensor);
  const auto [first, last] = section.places.equal_range(memory);
  for (auto place = first; place != last; ++place) {
    const auto& [stored_name, stored] = section.whole[place->second];
    if (same_memory(stored, tensor)) {
      section.tied.emplace(name, stored_name);
      return;
    }
  }
  section.places.emplace(memory, section.whole.size());
  section.whole.emplace_back(name, tensor);
}

Content& Content::add_slice(const std::string& section_name, const std::string& name,
                            const at::Tensor& elements, int64_t begin, std::vector<int64_t> sizes) {
  Section& target = section(section_name, name, elements);
  take_name(target, name);
  const int64_t whole =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
  LOCKSTEP_CHECK(elements.dim() == 1 && begin >= 0 && begin + elements.numel() <= whole,
                 "the slice of \"", name, "\" has sizes ", elements.sizes(), " from element ",
                 begin, " on; it must be 1-dimensional and lie within the ", whole,
                 " elements of the whole tensor");
  target.slices.emplace_back(name, Slice{elements, begin, std::move(sizes)});
  return *this;
}

Content& Content::add_own(const std::string& section_name, const std::string& name,
                          const at::Tensor& tensor) {
  section(section_name, name, tensor).own.emplace_back(name, tensor);
  return *this;
}

}  // namespace lockstep::snapshot
