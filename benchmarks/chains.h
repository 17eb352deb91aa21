#pragma once

#include <lockstep/checkpointing/activation/chain.h>

#include <string>

namespace lockstep::benchmarks {

/// A chain of stages with an input for it.
struct ChainWorkload {
  Chain chain;
  at::Tensor input;
};

/// "encoder": 12 transformer layers of 256 units, 4 heads, dropout 0.1, 8 x 64 tokens.
/// "bert-base": the same of 768 units, 12 heads, 4 x 64 tokens.
/// "resnet50": its stem, 16 bottlenecks and head as 18 stages, 4 images of 3 x 96 x 96.
/// "residual-1000": 1000 layers x + relu(linear(x)) of 128 units on 256 rows, in 100 stages of 10.
/// peers/checkpoint_chains.py has all but resnet50 in Python. Throws Error for another name.
ChainWorkload make_chain(const std::string& name);

}  // namespace lockstep::benchmarks
