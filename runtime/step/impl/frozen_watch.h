#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/storage/impl/exact_values.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Whether the frozen parameters that O2 or O3 lowered to 16 bits stay as they are. They have no
/// masters: what a program adds to them in small steps (a momentum encoder, a teacher) is rounded
/// away. What ExactValues writes (resume, load_weights, adopt_weights, ...) counts as their new
/// values, and so does what the program writes before the first window ends.
/// A write through the tensor, a view or detach() is seen by its version, other memory by its
/// address. On the host the bits are compared, too, for what is written through data(): in the
/// windows 2, 4, 8, ... and in each `period`-th, and by change_in_values(). On a device only
/// change_in_values() looks at bits, of tensors whose fp32 values ExactValues keeps.
/// Ranks: local. Threads: one.
class FrozenWatch {
 public:
  /// `exact` must outlive the watch.
  FrozenWatch(const std::vector<ModelTensor>& frozen, const ExactValues& exact,
              const Precision& precision, int64_t period);

  /// The first parameter that was written since, and what to do. An integer comparison a parameter.
  std::optional<Error> change() const;
  /// The same by bits. For save(): reads all of them.
  std::optional<Error> change_in_values() const;
  /// change(), with bits where they are due. After the last forward of a window.
  std::optional<Error> end_window();

 private:
  struct Watched {
    std::string name;
    at::Tensor tensor;
    uint32_t version = 0;
    const void* memory = nullptr;
    uint64_t digest = 0;  // 0 on a device
  };
  bool is_noted() const;
  void note();
  Error error(const Watched& weight) const;

  const ExactValues& exact_;
  std::string level_;
  int64_t period_;
  std::vector<Watched> watched_;
  std::optional<int64_t> noted_writes_;
  std::optional<Error> found_;  // stays until the values are noted again
  int64_t windows_ = 0;
};

}  // namespace lockstep::detail
