#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::detail {

/// The rows of all ranks, in rank order, of which rank k has `counts[k]`. `gather` gets the same
/// number on every rank, this rank's rows and zeros, and returns those of all ranks.
at::Tensor gather_ragged_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                              const std::function<at::Tensor(const at::Tensor& rows)>& gather);

/// The number of rows. Throws Error if there is no dimension 0.
int64_t row_count(const at::Tensor& rows);

/// A new tensor of the shape of `rows`, with `count` rows.
at::Tensor room_for_rows(const at::Tensor& rows, int64_t count);

}  // namespace lockstep::detail
