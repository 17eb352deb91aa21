#include <lockstep/collectives/mpi/mpi_slices.h>

namespace lockstep::detail {
namespace {

/// Up to this size the exchange is faster than the chain, even if it sends more.
constexpr int64_t kSmallBytes = 64 << 10;

}  // namespace

MpiSlices::MpiSlices(const MpiComm& column, const NodeLayout& layout)
    : layout_(layout), exchange_(column, layout), chain_(column, layout) {}

void MpiSlices::start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
                      Span result) {
  const int64_t elements_of_node = layout_.largest() * result.element_size();
  const int64_t sum = static_cast<int64_t>(c10::elementSize(kernels::sum_dtype(result.dtype)));
  chained_ = layout_.in_rank_order() && elements_of_node > sum &&
             result.numel * elements_of_node > kSmallBytes;
  if (chained_) {
    chain_.start(reduction, sources, result);
  } else {
    exchange_.start(reduction, sources, result);
  }
}

}  // namespace lockstep::detail
