#include <lockstep/collectives/check.h>
#include <lockstep/collectives/core/ragged_rows.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

namespace lockstep::detail {

int64_t row_count(const at::Tensor& rows) {
  LOCKSTEP_CHECK(rows.defined() && rows.dim() > 0,
                 "a collective of rows needs a tensor with at least one dimension on every rank");
  return rows.size(0);
}

at::Tensor gather_ragged_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                              const std::function<at::Tensor(const at::Tensor& rows)>& gather) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  if (*std::min_element(counts.begin(), counts.end()) == most) {
    return gather(rows);
  }
  std::vector<int64_t> padding(static_cast<size_t>(2 * rows.dim()), 0);
  padding.back() = most - rows.size(0);
  const at::Tensor all = gather(at::constant_pad_nd(rows, padding));
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    parts.push_back(all.narrow(0, static_cast<int64_t>(rank) * most, counts[rank]));
  }
  return at::cat(parts);
}

at::Tensor room_for_rows(const at::Tensor& rows, int64_t count) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = count;
  return at::empty(sizes, rows.options());
}

}  // namespace lockstep::detail
