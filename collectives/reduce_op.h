#pragma once

namespace lockstep {

/// How a reduction combines the elements of the ranks.
///
/// `avg` divides the sum by the number of ranks. With `predivide(f)` each rank's element is
/// multiplied by 1/f before the sum, and the sum by f/size afterwards, as in Apex and Horovod
/// (`gradient_predivide_factor`). This keeps a 16-bit sum in range. Host transports accumulate fp16
/// and bf16 in fp32 and round once, at the end, so on the host f only affects the rounding of
/// subnormal numbers. Integer dtypes support sum, max and min only. The max or min of a NaN and a
/// number is NaN on hosts.
class ReduceOp {
 public:
  enum class Kind { sum, max, avg, min };

  static constexpr ReduceOp sum() { return {Kind::sum, 1.0}; }
  static constexpr ReduceOp max() { return {Kind::max, 1.0}; }
  static constexpr ReduceOp min() { return {Kind::min, 1.0}; }
  static constexpr ReduceOp avg() { return {Kind::avg, 1.0}; }
  /// Only for avg. f must be positive and finite, else the collective throws Error.
  constexpr ReduceOp predivide(double f) const { return {kind_, f}; }

  constexpr Kind kind() const { return kind_; }
  constexpr double predivide_factor() const { return predivide_; }

  constexpr bool operator==(const ReduceOp& other) const {
    return kind_ == other.kind_ && predivide_ == other.predivide_;
  }

 private:
  constexpr ReduceOp(Kind kind, double predivide) : kind_(kind), predivide_(predivide) {}
  Kind kind_;
  double predivide_;
};

}  // namespace lockstep
