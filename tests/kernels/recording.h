#pragma once

#include "emulated_cuda/device.h"

#include <lockstep/amp/cuda/element_pack.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::testing {

/// Launches on the emulated device, with all memory that kernels see, as a file for replay.py: for
/// each launch a line of JSON, the memory before the launch and the memory after it.
///
/// All arrays of a case lie in one block of memory, with bytes between them that no kernel may
/// touch. Arrays begin at multiples of 16 bytes.
class Recording {
 public:
  explicit Recording(const std::string& path);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Frees all arrays. `elements`: the elements that each launch of this case works on, where its
  /// work an element is counted; else 0.
  void begin(const std::string& name, int64_t elements = 0);

  /// An array of T, each byte 0xee.
  template <typename T>
  T* array(int64_t size) {
    return static_cast<T*>(allocate(size * static_cast<int64_t>(sizeof(T)), type_name<T>()));
  }
  /// Random values between `low` and `high`, the same in each run.
  float* floats(int64_t size, float low, float high);
  /// Element::none: no array.
  amp::Elements elements(amp::Element type, int64_t size, float low = -2.0F, float high = 2.0F);
  /// A value in the memory that kernels see.
  template <typename T>
  T* one(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    T* const place = static_cast<T*>(allocate(sizeof(T), "bytes"));
    *place = value;
    return place;
  }
  std::mt19937& random() { return random_; }

 private:
  template <typename T>
  static const char* type_name() {
    return std::is_same_v<T, float>    ? "f4"
           : std::is_same_v<T, double> ? "f8"
           : sizeof(T) == 2            ? "u2"
                                       : "bytes";
  }
  void* allocate(int64_t bytes, const char* type);
  void describe(const emulated_cuda::Launch& launch);
  void write_memory();

  struct Array {
    size_t at;
    size_t bytes;
    std::string type;
  };
  std::ofstream file_;
  std::vector<std::byte> memory_;
  std::byte* base_;
  size_t used_ = 0;
  std::vector<Array> arrays_;
  std::string name_;
  int64_t elements_ = 0;
  std::mt19937 random_{7};
};

}  // namespace lockstep::testing
