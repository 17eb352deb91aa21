#pragma once

#include <string>

namespace lockstep {

/// How many CUDA devices this process may use: 0 without a driver, or with one that is too old for
/// this LibTorch. Makes no context.
int visible_devices();

/// "GPU-0123…" of visible device `index`: the same for all processes that see this device, or this
/// MIG slice of one, and no other. Makes no context. Throws Error (environment) where the driver
/// does not say.
std::string device_identity(int index);

}  // namespace lockstep
