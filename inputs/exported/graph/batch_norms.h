#pragma once

#include <lockstep/inputs/exported/graph/program.h>

namespace lockstep::exported {

/// run_decompositions() makes of a batch norm in training an operator that returns the new running
/// statistics, and a mutation that copies them into the buffers. This makes such norms
/// aten::batch_norm on the buffers again, so that convert_sync_batchnorm(), which knows a layer by
/// its running mean, reaches them. Leaves the program as it is if anything but these norms reads or
/// writes the statistics. Call before mark_last_uses.
void recompose_batch_norms(Program& program);

}  // namespace lockstep::exported
