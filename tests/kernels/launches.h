#pragma once

#include "recording.h"

#include <lockstep/amp/cuda/launch.h>

#include <cstdio>
#include <cstdlib>

namespace lockstep {

inline constexpr amp::Element kTypes[] = {amp::Element::fp32, amp::Element::fp16,
                                          amp::Element::bf16};

/// Ends the program with the text of a problem, if there is one.
inline void well(amp::cuda::Problem problem) {
  if (problem != nullptr) {
    std::fprintf(stderr, "%s\n", problem);
    std::exit(1);
  }
}

/// The kernels of layers: norms, bias and GELU, cross-entropy.
void record_layers(testing::Recording& record);

}  // namespace lockstep
