#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/agreement.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Compares count, names, sizes, strides, dtypes and trainability of parameters and buffers over
/// all ranks. Throws Error on every rank that names the first difference. Collective.
void require_same_structure(const Model& model, const Agreement& agreement);

/// Throws the same Error on every rank unless `text` (a description of options) is equal on all.
void require_same_text(const std::string& what, const std::string& text,
                       const Agreement& agreement);

/// Gives all ranks rank 0's bits. Compares them by hash; copies only the tensors that differ, and
/// then compares again: memory that ranks share by construct() is not written without need.
void broadcast_and_verify(const std::vector<ModelTensor>& tensors, Communicator& communicator,
                          const Agreement& agreement);

/// A digest of the bits of all tensors.
uint64_t digest(const std::vector<at::Tensor>& flat_tensors);

uint64_t digest_of(const void* data, size_t bytes, uint64_t seed = 0);

/// True on every rank if the digest is equal on all. Collective.
bool same_on_all_ranks(uint64_t digest, const Communicator& communicator);

}  // namespace lockstep::detail
