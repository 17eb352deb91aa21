#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What one stage costs. Bytes are activations, not weights; seconds are of one call.
struct StageCosts {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  int64_t output_bytes = 0;
  int64_t saved_bytes =
      0;  // kept from forward until backward: its output if keeps_output, no input
  bool keeps_output = true;              // its backward needs its output
  bool keeps_input = true;               // its backward needs its input
  int64_t forward_temporary_bytes = 0;   // at the peak of forward, on top of input and saved bytes
  int64_t passing_temporary_bytes = 0;   // without autograd, on top of input and output
  int64_t backward_temporary_bytes = 0;  // on top of saved bytes and the output's gradient
};

using ChainCosts = std::vector<StageCosts>;

/// Measures each stage of a chain on the sample's device, in the autocast and grad state of the
/// caller: the median of `repeats` forwards and backwards after one to warm up.
///
/// Parameters' .grad, buffers and random generators are as before afterwards. Do it before a
/// data-parallel layer hooks the parameters. Throws lockstep::Error if the chain is empty or a
/// stage returns a tensor that needs no gradient.
ChainCosts profile_chain(const Chain& chain, const at::Tensor& sample, int64_t repeats = 3);

}  // namespace lockstep
