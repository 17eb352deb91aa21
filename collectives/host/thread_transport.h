#pragma once

#include <lockstep/collectives/communicator_options.h>
#include <lockstep/collectives/impl/transport.h>

#include <memory>
#include <vector>

namespace lockstep::detail {

/// One transport for each of `size` ranks that are threads of this process. `size` >= 1.
std::vector<std::shared_ptr<Transport>> make_thread_transports(int size,
                                                               CommunicatorOptions options);

}  // namespace lockstep::detail
