#pragma once

#include <cstddef>
#include <functional>

namespace lockstep::testing {

/// The most bytes of malloc and its kin, in all libraries of the process, that were in use at one
/// time while `body` ran, beyond those before. Memory that a file is mapped into does not count.
size_t most_allocated_by(const std::function<void()>& body);

}  // namespace lockstep::testing
