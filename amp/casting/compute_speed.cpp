#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <lockstep/amp/impl/compute_speed.h>
#include <lockstep/collectives/impl/seconds_since.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace lockstep::amp {
namespace {

using Work = std::function<void()>;

/// Forward, then the gradients of both operands.
Work product_work(c10::ScalarType dtype) {
  const at::Tensor a = at::ones({128, 128}, dtype);
  const at::Tensor b = at::ones({128, 128}, dtype);
  return [a, b] {
    const at::Tensor c = at::mm(a, b);
    at::mm(c, b.t());
    at::mm(a.t(), c);
  };
}

Work convolution_work(c10::ScalarType dtype) {
  const at::Tensor x = at::ones({1, 16, 16, 16}, dtype);
  const at::Tensor weight = at::ones({16, 16, 3, 3}, dtype);
  return [x, weight] {
    const std::array<int64_t, 2> one = {1, 1};
    const std::array<int64_t, 2> zero = {0, 0};
    const at::Tensor y = at::convolution(x, weight, {}, one, one, one, false, zero, 1);
    at::convolution_backward(y, x, weight, {}, one, one, one, false, zero, 1, {true, true, false});
  };
}

double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return lockstep::detail::seconds_since(begin);
}

/// The fastest run of each, after one warm-up. The two alternate, so that a disturbance affects
/// both. A slow pair is run once: no disturbance is that large.
std::pair<double, double> fastest(const Work& work, const Work& fp32) {
  constexpr int kRuns = 5;
  constexpr double kEnough = 4e-3;
  work();
  fp32();
  double best = std::numeric_limits<double>::max();
  double best_fp32 = best;
  double spent = 0.0;
  for (int run = 0; run < kRuns && spent < kEnough; ++run) {
    const double in_fp32 = seconds_of(fp32);
    const double in_dtype = seconds_of(work);
    best = std::min(best, in_dtype);
    best_fp32 = std::min(best_fp32, in_fp32);
    spent += in_dtype;
  }
  return {best, best_fp32};
}

std::string times(double seconds, double fp32) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "%.1f times as long as in fp32 (%.2f ms, %.2f ms)",
                seconds / fp32, seconds * 1e3, fp32 * 1e3);
  return text.data();
}

}  // namespace

double ComputeSpeed::slowdown() const {
  return std::max(product / product_fp32, convolution / convolution_fp32);
}

ComputeSpeed measure_compute_speed(c10::ScalarType dtype) {
  const c10::AutoGradMode no_grad(false);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  ComputeSpeed speed;
  std::tie(speed.product, speed.product_fp32) =
      fastest(product_work(dtype), product_work(c10::kFloat));
  std::tie(speed.convolution, speed.convolution_fp32) =
      fastest(convolution_work(dtype), convolution_work(c10::kFloat));
  return speed;
}

const ComputeSpeed& compute_speed(c10::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<c10::ScalarType, ComputeSpeed> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(dtype);
  return found != known.end() ? found->second
                              : known.emplace(dtype, measure_compute_speed(dtype)).first->second;
}

std::string slow_compute_advice(c10::ScalarType dtype, const ComputeSpeed& speed) {
  if (speed.slowdown() <= kSlowCompute) {
    return "";
  }
  return c10::str(
      dtype == c10::kHalf ? "fp16" : "bf16",
      " is slow on this processor: forward and backward of a small matrix product take ",
      times(speed.product, speed.product_fp32), ", of a small convolution ",
      times(speed.convolution, speed.convolution_fp32),
      ". Precision::automatic(runtime.device()) chooses a dtype that is fast here; "
      "Precision::O0().wire(torch::kHalf) computes in fp32 and sends fp16");
}

std::optional<c10::ScalarType> fast_16_bit_dtype(
    bool has_bf16, bool has_fp16, const std::function<double(c10::ScalarType)>& slowdown) {
  if (has_bf16 && slowdown(c10::kBFloat16) <= kSlowCompute) {
    return c10::kBFloat16;
  }
  if (has_fp16 && slowdown(c10::kHalf) <= kSlowCompute) {
    return c10::kHalf;
  }
  return std::nullopt;
}

}  // namespace lockstep::amp
