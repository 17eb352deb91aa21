#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>

#include <functional>

namespace lockstep::detail {

/// The rows of all ranks, in rank order, which may have different numbers of them. `gather` gets
/// the same number on every rank, this rank's rows and zeros, and returns those of all ranks.
at::Tensor gather_ragged_rows(const Communicator& communicator, const at::Tensor& rows,
                              const std::function<at::Tensor(const at::Tensor& rows)>& gather);

/// A new tensor of the shape of `rows`, with `count` rows.
at::Tensor room_for_rows(const at::Tensor& rows, int64_t count);

}  // namespace lockstep::detail
