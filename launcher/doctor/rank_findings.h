#pragma once

#include <lockstep/collectives/communicator.h>

#include <functional>
#include <string>
#include <vector>

#include "doctor/finding.h"

namespace lockstep::doctor {

/// The finding of an action on this rank. An exception becomes a failure with its text.
Finding finding_of(const std::function<Finding()>& action);

/// The finding of an action that all ranks take together. If an exception ends it on this rank
/// alone, this rank leaves all communicators: the others learn why, instead of another call.
Finding or_leave(const std::function<Finding()>& action);

/// The worst finding of all ranks; the first of several equally bad ones. A warning or failure of a
/// rank other than 0 names that rank. Collective.
Finding worst_of(const Communicator& control, const Finding& mine);

/// The ranks whose `bytes` differ from rank 0's. Collective.
std::vector<int> ranks_that_differ(const Communicator& control, const std::string& bytes);

/// "rank 1", "ranks 1, 3"
std::string names_of(const std::vector<int>& ranks);

/// A digest of the bytes of tensors on any device.
std::string digest_of(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::doctor
