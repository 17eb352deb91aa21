#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>
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
    std::vector<std::pair<std::string, at::Tensor>> whole;
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

  std::map<std::string, Section> sections_;
  std::map<std::string, std::string> texts_;
};

}  // namespace lockstep::snapshot
