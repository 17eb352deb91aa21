#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::snapshot {

/// What one rank saves in a snapshot. Holds references to the tensors, not copies.
///
/// Each section has its own files (`model` -> model.safetensors), so a tool can read the weights
/// alone. Tensors: dense, any device and strides, dtypes of safetensors.
/// Ranks: texts and add() must be the same on every rank (names, sizes, dtypes; the values are
/// those of the rank that writes); add_slice() and add_own() may differ.
/// Errors: Error for a section with characters outside of [a-z0-9_], an undefined tensor, a slice
/// that does not fit, a name that the section has already. Threads: one.
class Content {
 public:
  /// Adds small data, such as the configuration, to the manifest. Must be UTF-8.
  Content& text(const std::string& name, std::string value);

  /// Adds a tensor that every rank has; it is stored once. A second name for the same memory (tied
  /// weights) is stored as a reference to the first.
  Content& add(const std::string& section, const std::string& name, const at::Tensor& tensor);

  /// The same for a tensor that has no memory yet: `outline`, on the meta device, has its sizes,
  /// strides and dtype. Its values come by the section's fetch_by().
  Content& add_later(const std::string& section, const std::string& name,
                     const at::Tensor& outline);
  /// `fetch` passes the name and the values of each tensor of add_later() to `take`; their memory
  /// may go when `take` returns. Called on every rank by a save, or a comparison with a snapshot,
  /// so it may be collective. `take` throws nothing.
  using Take = std::function<void(const std::string& name, const at::Tensor& values)>;
  Content& fetch_by(const std::string& section, std::function<void(const Take& take)> fetch);

  /// Adds this rank's part of a tensor of `sizes` that is divided among ranks: `elements`
  /// (1-dimensional) are those from `begin` on, in row-major order. The slices of all ranks must
  /// cover each element once.
  Content& add_slice(const std::string& section, const std::string& name,
                     const at::Tensor& elements, int64_t begin, std::vector<int64_t> sizes);

  /// Adds a tensor of this rank alone, such as the state of its random numbers.
  Content& add_own(const std::string& section, const std::string& name, const at::Tensor& tensor);

  struct Slice {
    at::Tensor elements;
    int64_t begin = 0;
    std::vector<int64_t> sizes;
  };
  struct Section {
    std::vector<std::pair<std::string, at::Tensor>> whole;  // on the meta device: of add_later()
    std::function<void(const Take&)> fetch;
    std::map<std::string, std::string> tied;  // name -> the name it is stored under
    std::vector<std::pair<std::string, Slice>> slices;
    std::vector<std::pair<std::string, at::Tensor>> own;
    std::unordered_multimap<const void*, size_t> places;  // memory -> index in whole
    std::set<std::string> names;                          // of whole, tied and slices
  };
  const std::map<std::string, Section>& sections() const { return sections_; }
  const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  Section& section(const std::string& name, const std::string& tensor_name,
                   const at::Tensor& tensor);
  static void take_name(Section& section, const std::string& name);
  static void add_whole(Section& section, const std::string& name, const at::Tensor& tensor);

  std::map<std::string, Section> sections_;
  std::map<std::string, std::string> texts_;
};

}  // namespace lockstep::snapshot
