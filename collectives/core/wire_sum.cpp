#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/collectives/impl/wire_sum.h>

#include <cmath>

namespace lockstep::detail {
namespace {

constexpr double kLargestError = 1.0 / 32;

double unit_roundoff(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::BFloat16:
      return std::ldexp(1.0, -8);
    case c10::ScalarType::Half:
      return std::ldexp(1.0, -11);
    case c10::ScalarType::Float:
      return std::ldexp(1.0, -24);
    case c10::ScalarType::Double:
      return std::ldexp(1.0, -53);
    default:
      throw Error(c10::str("a sum of ", dtype, " has no rounding error"));
  }
}

}  // namespace

bool rounds_at_each_rank(const Communicator& communicator) {
  return communicator.transport().rounds_at_each_rank();
}

double sum_error_bound(c10::ScalarType dtype, int ranks) {
  return std::expm1((ranks - 1) * std::log1p(unit_roundoff(dtype)));
}

c10::ScalarType dtype_for_sums(c10::ScalarType dtype, int ranks) {
  const bool half = dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
  return half && sum_error_bound(dtype, ranks) > kLargestError ? c10::ScalarType::Float : dtype;
}

}  // namespace lockstep::detail
