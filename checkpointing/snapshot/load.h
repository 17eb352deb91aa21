#pragma once

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/snapshot/impl/tensor_source.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::snapshot {

/// How strictly names and sizes must match.
enum class Match {
  strict,   // every target is found with its sizes, and no tensor of the source is left over
  partial,  // loads tensors that match by name and sizes, and reports the others; at least one must
};

struct LoadOptions {
  Match match = Match::strict;
  /// Maps the name of a target to its name in the source. Default: the same name. An empty name:
  /// the target is not wanted.
  std::function<std::string(const std::string&)> name_in_source;
  /// True for the name of a target whose tensor in the source has rows and columns exchanged, such
  /// as the weight of a Conv1D of Hugging Face's GPT-2. Only matrices are transposed; other targets
  /// are loaded as they are. Default: none.
  std::function<bool(const std::string&)> transposed;
  /// True: load_weights() takes the moving averages that a snapshot holds (TrainerOptions::ema) in
  /// place of the weights and buffers that have one. Throws Error (exit code snapshot) if there are
  /// none. load_tensors() has no use for it.
  bool averaged = false;
};

/// The result of a load. Each list has one entry for each name.
struct LoadReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // targets that are not in the source
  std::vector<std::string> unexpected;  // tensors of the source that are no target
  std::vector<std::string> misshapen;   // other sizes, or an integer in place of a float

  bool is_complete() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// All lists but `loaded`, as text.
  std::string text() const;
};

/// Why the tensor `name` of the source cannot be loaded into a tensor of these sizes and this
/// dtype; empty if it can.
std::string why_misshapen(const TensorSource& source, const std::string& name,
                          at::IntArrayRef wanted_sizes, at::ScalarType wanted_dtype);

/// Copies tensors of the source into the targets with the same names, in any order. Between
/// floating dtypes, values are converted to the dtype of the target, never reinterpreted. Targets
/// may be on any device and have any strides.
/// Everything is checked, digests included, before the first target changes. With Match::strict,
/// throws Error (exit code snapshot) with a list of all mismatches; with Match::partial, if nothing
/// matches of what is wanted. If one prefix is all that keeps most names apart, the message says
/// so.
LoadReport load_tensors(const TensorSource& source,
                        const std::vector<std::pair<std::string, at::Tensor>>& targets,
                        const LoadOptions& options = {});

}  // namespace lockstep::snapshot
