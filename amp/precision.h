#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <lockstep/amp/loss_scaler_options.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Model;
struct ModelTensor;

/// What is kept, computed and sent in which dtype: Apex's levels O0 to O3, for fp16 and bf16.
///
/// |    | model weights        | masters | compute  | wire | loss scale                      |
/// | O0 | fp32                 | -       | fp32     | fp32 | 1 (dynamic if the wire is fp16) |
/// | O1 | fp32                 | -       | autocast | half | dynamic for fp16, 1 for bf16    |
/// | O2 | half, norms fp32     | fp32    | autocast | half | dynamic for fp16, 1 for bf16    |
/// | O3 | half, norms as well  | none    | autocast | half | 1                               |
/// "half" is the dtype given to the level. The update's arithmetic is fp32 at every level.
///
/// Options return a changed copy. validate() throws Error for an impossible combination and says
/// why. A plain value: no rank or thread requirements, but all ranks must use the same one.
class Precision {
 public:
  enum class Level { O0, O1, O2, O3 };

  static Precision O0();
  static Precision O1(c10::ScalarType compute = c10::ScalarType::Half);
  static Precision O2(c10::ScalarType compute = c10::ScalarType::Half);
  static Precision O3(c10::ScalarType compute = c10::ScalarType::Half);
  /// bf16 or fp16 (O1) where the device computes in it fast, else O0 with an fp16 wire. On a CPU:
  /// the processor has instructions for the dtype, and a small matrix product and a small
  /// convolution are not more than 5 times slower in it than in fp32 (compute_speed.h). Ranks on
  /// different processors may choose differently, which a Trainer refuses: give them one by name.
  static Precision automatic(c10::Device device);

  /// The dtype in which gradients travel: fp32, fp16 or bf16.
  Precision wire(c10::ScalarType dtype) const;
  /// O2 keeps norms in fp32 unless this is false; O3 converts them unless it is true. Under O0
  /// and O1 norms are fp32 anyway: true is accepted, false is refused by validate().
  Precision keep_batchnorm_fp32(bool keep) const;
  /// Parameters and buffers whose name contains `pattern` as a dotted part ("wo" matches
  /// "block.0.wo.weight") stay fp32, and what is computed with those parameters is computed in fp32
  /// (kept_fp32.h), at every level. May be called several times.
  Precision keep_fp32(std::string pattern) const;
  /// Replaces the level's loss scale policy.
  Precision loss_scale(amp::LossScalerOptions options) const;
  /// O2 with bf16 only: instead of fp32 masters, 16 bits beside each bf16 weight that make it one
  /// exactly: 2 bytes an element less, and every update has the bits that it has with masters. A
  /// weight half way between two bf16 numbers (one in 65,536) is the one of larger magnitude.
  Precision remainders(bool on = true) const;
  /// O3 with bf16 only: an updated weight is rounded up or down at random, so that it is right in
  /// the mean; to nearest, a weight of 1 stays where it is for updates below 0.004. The random
  /// numbers are a function of Runtime's seed, update and element: the same on all ranks and after
  /// a resume.
  Precision stochastic_rounding(bool on = true) const;
  /// 16-bit wires only: what rounding a gradient to the wire dtype lost is kept, in fp32 on each
  /// rank, and added to the next update's gradient (Seide et al., 2014; Karimireddy et al., 2019).
  /// A skipped update changes nothing of it. Costs 8 bytes an element. The rounding of the ranks'
  /// sum is not covered.
  Precision error_feedback(bool on = true) const;
  /// See ReduceOp::predivide. Default 1.
  Precision predivide(double factor) const;

  Level level() const { return level_; }
  /// "O2 (fp16 model, fp32 norms and masters, fp16 wire)"
  std::string describe() const;
  bool autocast() const { return level_ != Level::O0; }
  c10::ScalarType compute_dtype() const { return compute_; }
  c10::ScalarType wire_dtype() const;
  double predivide_factor() const { return predivide_; }
  amp::LossScalerOptions loss_scaler_options() const;
  /// fp32 masters beside half weights.
  bool has_masters() const { return level_ == Level::O2 && !remainders_; }
  /// 16-bit rests that make bf16 weights fp32 masters.
  bool has_remainders() const { return level_ == Level::O2 && remainders_; }
  bool rounds_randomly() const { return stochastic_rounding_; }
  bool feeds_errors_back() const { return error_feedback_; }
  /// The dtype that this parameter or buffer is to have: its own for integers and bool.
  c10::ScalarType storage_dtype(const ModelTensor& tensor) const;
  /// True if a keep_fp32 pattern names this parameter or buffer.
  bool keeps_fp32(const ModelTensor& tensor) const;
  /// Throws Error naming the option and the reason.
  void validate() const;
  /// Throws Error for a keep_fp32 pattern that names nothing of the model, with the nearest names.
  void require_known_names(const Model& model) const;

 private:
  Precision(Level level, c10::ScalarType compute) : level_(level), compute_(compute) {}
  bool keeps_norms_fp32() const;

  Level level_;
  c10::ScalarType compute_;
  std::optional<c10::ScalarType> wire_;
  std::optional<bool> keep_norms_;
  std::vector<std::string> keep_fp32_;
  std::optional<amp::LossScalerOptions> loss_scale_;
  double predivide_ = 1.0;
  bool remainders_ = false;
  bool stochastic_rounding_ = false;
  bool error_feedback_ = false;
};

}  // namespace lockstep
