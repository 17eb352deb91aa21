#include <lockstep/collectives/impl/wire_sum.h>
#include <lockstep/runtime/step/impl/gradient_sums.h>

namespace lockstep::detail {

Precision with_default_wire(const Precision& precision, const Communicator& devices) {
  if (precision.names_wire() || !rounds_at_each_rank(devices)) {
    return precision;
  }
  const c10::ScalarType wire = dtype_for_sums(precision.wire_dtype(), devices.size());
  return wire == precision.wire_dtype() ? precision : precision.wire(wire);
}

ReduceOp gradient_operation(const Precision& precision, const Communicator& devices) {
  const ReduceOp mean = ReduceOp::avg().predivide(precision.predivide_factor());
  return rounds_at_each_rank(devices) && mean == ReduceOp::avg() ? ReduceOp::sum() : mean;
}

}  // namespace lockstep::detail
