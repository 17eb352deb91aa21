#pragma once

#include <lockstep/checkpointing/snapshot/tensor_source.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::snapshot {

enum class Match {
  strict,   // every target is found with its sizes, and nothing is left over
  partial,  // what matches by name and sizes is loaded, the rest is reported
};

struct LoadOptions {
  Match match = Match::strict;
  /// The name in the file of a target, where that is another.
  std::function<std::string(const std::string&)> name_in_source;
};

/// What a load did, or would have to do. One line for each name.
struct LoadReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // targets that the source does not have
  std::vector<std::string> unexpected;  // tensors of the source that nobody asked for
  std::vector<std::string> misshapen;   // other sizes, or an integer where a float belongs

  bool is_complete() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// All of it but `loaded`, as text.
  std::string text() const;
};

/// Why a tensor of the source cannot be loaded into one of these sizes and dtype; empty if it can.
std::string why_misshapen(const TensorSource& source, const std::string& name,
                          at::IntArrayRef wanted_sizes, at::ScalarType wanted_dtype);

/// Copies tensors of the source into the targets of the same name; order plays no part. Values are
/// converted to the target's dtype among floating types, never reinterpreted; targets may be on any
/// device and have any strides.
/// Everything is checked, digests included, before the first target changes. Throws Error (exit
/// code snapshot) that lists all that does not match, if it must.
LoadReport load_tensors(const TensorSource& source,
                        const std::vector<std::pair<std::string, at::Tensor>>& targets,
                        const LoadOptions& options = {});

}  // namespace lockstep::snapshot
