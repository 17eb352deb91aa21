#pragma once

#include <cmath>

namespace lockstep::amp {

// What the fp64 forms of the optimizers share. Each functor of optimizer_list.h has a form
// `Double`: its arithmetic on one element of an fp64 parameter, in host memory. AdamW, Adam and SGD
// do the operations of torch.optim in their order. Where LibTorch's kernels fuse a product and a
// sum, so does this code, by std::fma: the bits are those of torch.optim on every processor with
// fused multiply-add, and the same ones, slower, on a processor without. Square roots are
// LibTorch's own (at::sqrt), since those are not always rounded to nearest; so a form with
// kTakesRoots makes two passes: moments() moves the moments of all elements, then the call operator
// gets the root of the second moment in the place of the gradient.

/// GradientScale in fp64.
struct DoubleScale {
  double factor;
  double limit;
  double operator()(double gradient) const {
    const double scaled = gradient * factor;
    return scaled > limit ? limit : (scaled < -limit ? -limit : scaled);
  }
};

/// from + weight * (to - from), as torch.lerp.
inline double lerp(double from, double to, double weight) {
  return weight < 0.5 ? std::fma(weight, to - from, from) : std::fma(weight - 1.0, to - from, to);
}

}  // namespace lockstep::amp
