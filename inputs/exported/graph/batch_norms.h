#pragma once

#include <lockstep/inputs/exported/graph/program.h>

namespace lockstep::exported {

/// Reverts what run_decompositions() does to a batch norm in training, which becomes an operator
/// that returns new running statistics, and a mutation that copies them to the buffers. Such norms
/// become aten::batch_norm on the buffers again, so that convert_sync_batchnorm(), which finds a
/// layer by its running mean, can convert them. Changes nothing if anything else reads or writes
/// the statistics. Call before mark_last_uses.
void recompose_batch_norms(Program& program);

}  // namespace lockstep::exported
