#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The measured costs of one stage. Bytes are activation bytes, without weights. Seconds are those
/// of one call.
struct StageCosts {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  int64_t output_bytes = 0;
  /// Kept from forward until backward, including the output if keeps_output, without the input.
  int64_t saved_bytes = 0;
  bool keeps_output = true;              // backward of the stage needs the output
  bool keeps_input = true;               // backward of the stage needs the input
  bool has_gradient = true;              // backward reaches the stage
  bool changes_input = false;            // in place: no region begins here
  int64_t forward_temporary_bytes = 0;   // peak of forward, beyond input and saved bytes
  int64_t passing_temporary_bytes = 0;   // peak without autograd, beyond input and output
  int64_t backward_temporary_bytes = 0;  // peak, beyond saved bytes and gradient of output
};

using ChainCosts = std::vector<StageCosts>;

/// Measures each stage of a chain on the device of the sample, in the autocast and grad state of
/// the caller. Takes the median of `repeats` forwards and backwards after one warm-up. A stage that
/// returns a tensor that needs no gradient keeps nothing and costs its forward: frozen stages at
/// the beginning of a chain, or one that detaches.
///
/// The .grad of parameters, the buffers and the random generators are unchanged afterwards. Call it
/// before a data-parallel layer registers hooks on the parameters. Throws lockstep::Error if the
/// chain is empty, or if a stage fails on what the one before it returns.
ChainCosts profile_chain(const Chain& chain, const at::Tensor& sample, int64_t repeats = 3);

}  // namespace lockstep
