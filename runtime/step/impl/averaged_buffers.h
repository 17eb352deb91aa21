#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/step_state.h>
#include <lockstep/amp/model.h>
#include <lockstep/runtime/storage/impl/named_views.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Exponential moving averages of a model's floating-point buffers, such as the running statistics
/// of batch norm: fp32, of fp64 buffers in host memory fp64. An averaged model with the statistics
/// of other weights would be far off. Integer buffers have no average.
/// Ranks: local; the averages are equal where the buffers are. Threads: one.
class AveragedBuffers {
 public:
  /// Averages no buffers.
  AveragedBuffers() : AveragedBuffers({}, 0.0) {}
  /// The averages start at the buffers. `decay`: TrainerOptions::ema; 0: averages no buffers.
  AveragedBuffers(const std::vector<ModelTensor>& buffers, double decay);

  /// Moves each average towards its buffer, or nothing if `state` says skip. `state`: in memory of
  /// the buffers' device. Buffers may have other memory; the average of one with other sizes starts
  /// anew.
  void move(const amp::StepState* state);
  /// Restarts the averages of buffers with one of these names at the buffers.
  void restart(const std::vector<std::string>& names);
  void restart();
  /// Views of the averages, with the buffers' names and sizes.
  NamedTensors named() const;
  int64_t bytes() const;

 private:
  struct Entry {
    ModelTensor buffer;
    at::Tensor laid_out;  // an alias of the buffer, as of the last layout
    size_t group;
    int64_t offset;
  };
  /// Buffers whose averages lie in one array.
  struct Group {
    std::vector<at::Tensor> buffers;  // aliases, in memory order
    at::Tensor values;                // where the buffers are collected
    at::Tensor averages;
  };
  void lay_out();
  void follow();
  at::Tensor average(const Entry& entry) const;

  double decay_;
  std::vector<Entry> entries_;
  std::vector<Group> groups_;
};

}  // namespace lockstep::detail
