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

/// Detects writes to frozen parameters that O2 or O3 lowered to 16 bits. They have no masters, so
/// small changes by the program (a momentum encoder, a teacher) would be rounded away. Writes by
/// ExactValues (resume, load_weights, adopt_weights, ...), and by the program before the first
/// window ends, are allowed: they give the parameters new values. The version shows a write through
/// the tensor, a view or detach(); the address shows other memory. Only the bits show a write
/// through data(). On the host they are compared in windows 2, 4, 8, ..., in each `period`-th one
/// and by change_in_values(); on a device only by change_in_values(), and only for tensors whose
/// fp32 values ExactValues keeps.
/// Ranks: local. Threads: one.
class FrozenWatch {
 public:
  /// `exact` must outlive the watch.
  FrozenWatch(const std::vector<ModelTensor>& frozen, const ExactValues& exact,
              const Precision& precision, int64_t period);

  /// The Error of the first written parameter, with what to do. One comparison per parameter.
  std::optional<Error> change() const;
  /// change() that also compares the bits of all parameters. For save().
  std::optional<Error> change_in_values() const;
  /// change(), which compares bits if they are due. Call it after the last forward of a window.
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
