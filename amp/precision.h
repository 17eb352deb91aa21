#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <lockstep/amp/loss_scaler_options.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Model;
struct ModelTensor;

namespace detail {
template <typename Options>
struct OptionList;
}

/// Chooses the dtypes of weights, computation and communication: Apex's levels O0 to O3, for fp16
/// and bf16.
///
/// |    | model weights        | masters | compute  | wire | loss scale                      |
/// | O0 | fp32                 | -       | fp32     | fp32 | 1 (dynamic if the wire is fp16) |
/// | O1 | fp32                 | -       | autocast | half | dynamic for fp16, 1 for bf16    |
/// | O2 | half, norms fp32     | fp32    | autocast | half | dynamic for fp16, 1 for bf16    |
/// | O3 | half, norms as well  | none    | autocast | half | 1                               |
/// "half" is the dtype passed to the level. The arithmetic of the update is fp32 at every level.
///
/// Buffers keep the dtype that the program gave them, at every level: what a program adds up or
/// looks up would lose bits that no master keeps. Only running_mean and running_var of norms follow
/// the weights of norms. fp64 and fp8 parameters that are not trained keep their dtype, too.
/// Frozen parameters have no masters either: those that O2 or O3 lowered to 16 bits must not be
/// written while training goes on; name what the program moves (a momentum encoder) by keep_fp32().
///
/// At O0 fp64 parameters train in fp64: weights, moments and averages are fp64, the update is
/// computed in fp64, and their gradients travel in fp64, or in fp32 after wire(kFloat). A model may
/// mix fp32 and fp64. A Trainer refuses trained fp64 parameters at the other levels, with a 16-bit
/// wire, and on a GPU with any optimizer but TorchOptimizer. Complex parameters train as their
/// real view (at::view_as_real()): complex64 as fp32, at every level, and complex128 as fp64.
///
/// Each option returns a changed copy. validate() throws Error with the reason for an impossible
/// combination. A plain value: any rank, any thread; all ranks must use the same Precision.
class Precision {
 public:
  enum class Level { O0, O1, O2, O3 };

  static Precision O0();
  static Precision O1(c10::ScalarType compute = c10::ScalarType::Half);
  static Precision O2(c10::ScalarType compute = c10::ScalarType::Half);
  static Precision O3(c10::ScalarType compute = c10::ScalarType::Half);
  /// O1 with bf16 or fp16 where the device computes fast in that dtype, else O0 with an fp16 wire.
  /// On a CPU "fast" means that the processor has instructions for the dtype, and that a small
  /// matrix product and a small convolution take at most 5 times as long as in fp32.
  /// Ranks on different processors may get different results; a Trainer refuses that, so choose a
  /// level by name there.
  static Precision automatic(c10::Device device);

  /// The dtype in which gradients travel between ranks: fp32, fp16 or bf16. Without this call it is
  /// the level's; but over NCCL, which rounds a sum at each rank, a Trainer sends bf16 above 8
  /// ranks and fp16 above 64 as fp32.
  Precision wire(c10::ScalarType dtype) const;
  /// O2 keeps norms in fp32 unless `keep` is false; O3 converts norms unless `keep` is true. At O0
  /// and O1 norms are always fp32: true is accepted, and validate() refuses false.
  Precision keep_batchnorm_fp32(bool keep) const;
  /// Keeps parameters, and statistics of norms, in fp32 at every level if their name contains
  /// `pattern` as a dotted part ("wo" matches "block.0.wo.weight"). Operators that use those
  /// parameters also compute in fp32. May be called several times.
  Precision keep_fp32(std::string pattern) const;
  /// Counts further layers as norms, for the precision and for no_decay_on_norms_and_biases():
  /// `name` is a module's class without namespace and Impl ("SkipNormalizer"), or a dotted part of
  /// tensors' names ("block.0.ln", "layer_norm_weight"). May be called several times. Without it
  /// norms are LibTorch's, and classes named like them, in upper or lower case: ...BatchNorm,
  /// ...LayerNorm, ...GroupNorm, ...InstanceNorm, ...RMSNorm, ...ScaleNorm, also with 1d, 2d or 3d,
  /// and Norm itself. Trainer::summary() lists them.
  Precision norms(std::string name) const;
  /// Replaces the level's loss scale policy.
  Precision loss_scale(amp::LossScalerOptions options) const;
  /// O2 with bf16 only: keeps a 16-bit remainder beside each bf16 weight instead of an fp32 master.
  /// Weight and remainder together are the exact master. Saves 2 bytes per element; every update
  /// has the same bits as with masters. A master half way between two bf16 numbers (one in 65,536)
  /// gives the weight of larger magnitude, not the even one.
  Precision remainders(bool on = true) const;
  /// O3 with bf16 only: rounds an updated weight up or down at random, so that the mean is exact.
  /// With rounding to nearest, a weight of 1 ignores updates below 0.004. The random numbers depend
  /// only on the Runtime's seed, the update and the element, so they are the same on all ranks and
  /// after a resume.
  Precision stochastic_rounding(bool on = true) const;
  /// See ReduceOp::predivide. Default 1.
  Precision predivide(double factor) const;

  Level level() const { return level_; }
  /// "O2 (fp16 model, fp32 norms and masters, fp16 wire)"
  std::string describe() const;
  /// Name and value of every option, those of the loss scaler included. Equal lists: equal options.
  std::vector<std::pair<std::string, std::string>> fields() const;
  bool autocast() const { return level_ != Level::O0; }
  c10::ScalarType compute_dtype() const { return compute_; }
  c10::ScalarType wire_dtype() const;
  /// True after wire(): the dtype is the program's choice, not the level's.
  bool names_wire() const { return wire_.has_value(); }
  double predivide_factor() const { return predivide_; }
  amp::LossScalerOptions loss_scaler_options() const;
  /// True if fp32 masters are kept beside half weights.
  bool has_masters() const { return level_ == Level::O2 && !remainders_; }
  /// True if 16-bit remainders make the bf16 weights fp32 masters.
  bool has_remainders() const { return level_ == Level::O2 && remainders_; }
  bool rounds_randomly() const { return stochastic_rounding_; }
  /// The dtype in which this parameter is stored; integers, fp64 and fp8 keep their own.
  c10::ScalarType storage_dtype(const ModelTensor& parameter) const;
  /// The dtype in which this buffer is stored: its own, but for the statistics of norms.
  c10::ScalarType buffer_dtype(const ModelTensor& buffer) const;
  /// True if a keep_fp32 pattern matches this parameter or buffer.
  bool keeps_fp32(const ModelTensor& tensor) const;
  /// The same model, where what norms() names counts as a norm (ModelTensor::in_norm), too.
  Model with_norms(Model model) const;
  /// Throws Error that names the option and the reason.
  void validate() const;
  /// Throws Error for a keep_fp32 pattern that matches no name of the model, and for a name of
  /// norms() that matches neither name nor class; lists the nearest names.
  void require_known_names(const Model& model) const;

 private:
  friend struct detail::OptionList<Precision>;

  Precision(Level level, c10::ScalarType compute) : level_(level), compute_(compute) {}
  bool keeps_norms_fp32() const;
  bool names_norm(const ModelTensor& tensor) const;

  Level level_;
  c10::ScalarType compute_;
  std::optional<c10::ScalarType> wire_;
  std::optional<bool> keep_norms_;
  std::vector<std::string> keep_fp32_;
  std::vector<std::string> norms_;
  std::optional<amp::LossScalerOptions> loss_scale_;
  double predivide_ = 1.0;
  bool remainders_ = false;
  bool stochastic_rounding_ = false;
};

}  // namespace lockstep
