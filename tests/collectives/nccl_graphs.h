#pragma once

#include <lockstep/collectives/impl/graph_capture.h>

#include <functional>
#include <vector>

#include "nccl_ranks.h"
#include "verbs.h"

namespace lockstep::testing {

using namespace detail;

inline at::Tensor full(int64_t numel, double value) {
  return at::full({numel}, value);
}

inline int64_t capture(FakeGraph& graph, Communicator& nccl, const std::function<void()>& work,
                       CaptureKind kind = CaptureKind::real) {
  return graph_capture(nccl).capture(kind, [&](const std::function<void()>& join) {
    graph.capture([&] {
      work();
      join();
    });
  });
}

/// Something like a step: every collective, two under way at a time, the device computing between.
struct Step {
  explicit Step(NcclRank& rank, Communicator& nccl)
      : rank(rank),
        nccl(nccl),
        gradient(on_fake_device(uneven_numbers(rank.rank(), 20 * nccl.size()))),
        flag(on_fake_device(full(2, rank.rank()))),
        part(on_fake_device(at::zeros({20}))),
        whole(on_fake_device(at::zeros({20 * nccl.size()}))) {}

  void operator()() {
    rank.current.run([gradient = gradient, by = 1.0 + 0.1 * rank.rank()] {
      bytes_of_device(gradient).mul_(by).add_(0.25);
    });
    Work first = nccl.all_reduce(gradient, ReduceOp::avg());
    Work second = nccl.all_reduce(flag, ReduceOp::max());
    first.wait();
    nccl.reduce_scatter(part, gradient).wait();
    rank.current.run([part = part, by = rank.rank()] { bytes_of_device(part).sub_(by); });
    nccl.all_gather(whole, part).wait();
    nccl.broadcast(whole, nccl.size() - 1).wait();
    second.wait();
    rank.current.run([gradient = gradient, whole = whole] {
      bytes_of_device(gradient).sub_(bytes_of_device(whole)[3], 0.125);
    });
  }
  std::vector<at::Tensor> results() const {
    return {rank.read(gradient), rank.read(flag), rank.read(part), rank.read(whole)};
  }

  NcclRank& rank;
  Communicator& nccl;
  at::Tensor gradient, flag, part, whole;
};

}  // namespace lockstep::testing
