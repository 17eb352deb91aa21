#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Keeps the tables of nn::Embedding and nn::EmbeddingBag with max_norm equal on all ranks. Their
/// forward shrinks the rows that it reads, so each rank shrinks the rows of its own batch. Ranks
/// shrink a row to the same values and never undo it, so for each element the value nearest to zero
/// is that of one forward over all batches.
/// Ranks: merge() is collective, the rest local. Threads: one.
class RenormedTables {
 public:
  /// `devices`: the communicator of the model's device. Finds no tables in a torch::jit model.
  RenormedTables(const Model& model, Communicator devices);

  /// Makes the tables equal on all ranks: one all-reduce of each. Each rank calls it between the
  /// last forward of a window and its update. LibTorch sees the change as an in-place write.
  void merge();
  bool has(const std::string& name) const;
  /// A line for each table with its limit, to compare between ranks.
  std::string describe() const;

 private:
  struct Table {
    ModelTensor entry;
    at::Tensor home;  // alias from construction, used if the table's form changed since
    double max_norm;
  };
  void note(const Model& model, const at::Tensor& weight, double max_norm);
  bool merge(const at::Tensor& flat);

  Communicator devices_;
  std::vector<Table> tables_;
};

bool has_renormed_tables(const Model& model);
/// Throws Error that begins with `why` and names the first such table, if the model has one.
void require_no_renormed_tables(const std::string& why, const Model& model);

}  // namespace lockstep::detail
