#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/transport.h>

#include <memory>

namespace lockstep::detail {

/// A world of one rank: every collective is complete when it returns. Tensors on any device.
std::shared_ptr<Transport> make_solo_transport(c10::Device device = c10::kCPU);

}  // namespace lockstep::detail
