#pragma once

#include <cstdint>

#include "instruction.h"

namespace fake_cuda {

/// The address of each lane; 64 bits wide, or 32.
void addresses_of(const Warp& warp, const Address& address, bool is_wide, uint64_t* addresses);

}  // namespace fake_cuda
