#include "doctor/collective_checks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/collectives/impl/seconds_since.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "doctor/rank_findings.h"

namespace lockstep::doctor {
namespace {

constexpr int64_t kPeriod = 1 << 16;

/// The contribution of rank `rank`: one block, repeated.
at::Tensor block_of(int rank, int64_t elements) {
  return at::rand({std::min(elements, kPeriod)},
                  at::detail::createCPUGenerator(static_cast<uint64_t>(rank) + 1)) -
         0.5;
}

void repeat_block(const at::Tensor& flat, const at::Tensor& block) {
  const int64_t whole = flat.numel() / block.numel() * block.numel();
  flat.narrow(0, 0, whole).view({-1, block.numel()}).copy_(block);
  flat.narrow(0, whole, flat.numel() - whole).copy_(block.narrow(0, 0, flat.numel() - whole));
}

double largest_of_ranks(const Communicator& control, double mine) {
  const at::Tensor value = at::full({1}, mine, at::kDouble);
  control.all_reduce(value, ReduceOp::max()).wait();
  return value.item<double>();
}

}  // namespace

AllReduceResult all_reduce(const Communicator& world, const Communicator& control,
                           c10::Device device, int64_t bytes,
                           const std::function<void(at::Tensor&)>& fault) {
  AllReduceResult result;
  result.bytes = bytes;
  result.ranks = world.size();
  const int64_t elements = bytes / 4;
  const at::Tensor mine = block_of(world.rank(), elements).to(device);
  at::Tensor flat = world.allocate(elements, at::kFloat);
  double best = 0.0;
  for (int run = 0; run < 3; ++run) {
    repeat_block(flat, mine);
    control.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    world.all_reduce(flat).wait();
    if (!device.is_cpu()) {
      flat.narrow(0, 0, 1).cpu();  // the device is done
    }
    const double seconds = lockstep::detail::seconds_since(begin);
    best = run == 0 ? seconds : std::min(best, seconds);
  }
  if (fault) {
    fault(flat);
  }
  result.seconds = largest_of_ranks(control, best);
  result.differing = ranks_that_differ(control, digest_of({flat}));
  at::Tensor sum = at::zeros({mine.numel()}, at::kDouble);
  at::Tensor magnitude = at::zeros_like(sum);
  for (int rank = 0; rank < world.size(); ++rank) {
    const at::Tensor block = block_of(rank, elements).to(at::kDouble);
    sum += block;
    magnitude += block.abs();
  }
  const at::Tensor last =
      flat.narrow(0, (elements - 1) / kPeriod * kPeriod, (elements - 1) % kPeriod + 1)
          .cpu()
          .to(at::kDouble);
  const at::Tensor off = (last - sum.narrow(0, 0, last.numel())).abs() /
                         magnitude.narrow(0, 0, last.numel()).clamp_min(1e-30);
  result.error = largest_of_ranks(control, off.max().item<double>());
  return result;
}

Finding judge_all_reduce(const AllReduceResult& result) {
  if (!result.differing.empty()) {
    return {
        Status::failure,
        c10::str("the result of ", names_of(result.differing), " has other bits than rank 0's"),
        "do not train on these ranks: look for memory errors (nvidia-smi -q -d ECC, dmesg) and a "
        "faulty link (nvidia-smi nvlink -e); NCCL_P2P_DISABLE=1 or LOCKSTEP_TRANSPORT=staged "
        "shows whether the link is the cause"};
  }
  const double allowed = std::max(1, result.ranks - 1) * std::ldexp(1.0, -23);
  if (!(result.error <= allowed)) {
    return {Status::failure,
            c10::str("error ", result.error, " against fp64, ", allowed, " allowed"),
            "do not train on these ranks: sums are wrong; see NCCL_DEBUG=INFO, and try "
            "LOCKSTEP_TRANSPORT=staged"};
  }
  if (result.ranks == 1) {
    return {Status::skipped, "one rank: nothing to sum", ""};
  }
  const double speed = static_cast<double>(result.bytes) * 1e-9 / result.seconds;
  return {
      Status::ok,
      c10::str(result.bytes < 1024 ? c10::str(std::round(result.seconds * 1e7) * 0.1, " us")
                                   : c10::str(std::round(speed * 100.0) * 0.01, " GB/s"),
               ", equal bits, error ", result.error == 0.0 ? 0.0 : result.error, " against fp64"),
      ""};
}

Finding check_start_up(const Communicator& world, double runtime_seconds) {
  const auto begin = std::chrono::steady_clock::now();
  const Communicator part = world.split(0, world.rank());
  part.barrier().wait();
  const double milliseconds = std::round(lockstep::detail::seconds_since(begin) * 1e4) * 0.1;
  return {Status::ok,
          c10::str("Runtime ", std::round(runtime_seconds * 100.0) * 0.01, " s, one more ",
                   world.transport_name(), " communicator ", milliseconds, " ms"),
          ""};
}

}  // namespace lockstep::doctor
