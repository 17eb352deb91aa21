#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <optional>
#include <unordered_map>

#include "mpi_process_group.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

using at::Tensor;

/// Two layers with a tied weight and a side branch that only some steps use.
struct Network : torch::nn::Module {
  Tensor tied, weight, bias, side;

  Network() {
    at::manual_seed(7);
    tied = register_parameter("tied", at::randn({32, 32}) / 6);
    weight = register_parameter("weight", at::randn({8, 32}) / 6);
    bias = register_parameter("bias", at::randn({8}));
    side = register_parameter("side", at::randn({32, 32}) / 6);
  }
  Tensor forward(const Tensor& x, bool with_side) const {
    Tensor y = at::tanh(at::mm(at::tanh(at::mm(x, tied)), tied.t()));
    if (with_side) {
      y = y + at::mm(y, side);
    }
    return at::addmm(bias, y, weight.t());
  }
};

/// Other data on each rank and in each step.
Tensor loss_of(const Tensor& output) {
  return output.square().mean();
}
Tensor batch(int step, int rank) {
  at::manual_seed(100 * static_cast<uint64_t>(step) + static_cast<uint64_t>(rank));
  return at::randn({16, 32});
}

std::vector<Tensor> gradients(const Network& network) {
  std::vector<Tensor> result;
  for (const Tensor& parameter : network.parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone() : Tensor());
  }
  return result;
}

/// PyTorch's own reducer of DistributedDataParallel around a network.
class C10dParallel {
 public:
  C10dParallel(const Network& network, bool find_unused) {
    const std::vector<Tensor> parameters = network.parameters();
    const std::vector<bool> sparse(parameters.size(), false);
    const auto [buckets, limits] =
        c10d::compute_bucket_assignment_by_size(parameters, {bucket_bytes}, sparse);
    reducer_.emplace(parameters, std::vector(buckets.rbegin(), buckets.rend()),
                     testing::make_mpi_process_group(), sparse, bucket_bytes, find_unused,
                     /*gradient_as_bucket_view=*/true, std::unordered_map<size_t, std::string>{},
                     bucket_bytes,
                     /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                     std::vector<int64_t>{});
  }

  void backward(const Tensor& output) {
    reducer_->rebuild_buckets();
    reducer_->prepare_for_backward({output});
    loss_of(output).backward();
  }

 private:
  static constexpr int64_t bucket_bytes = 6 << 10;  // several buckets
  std::optional<c10d::Reducer> reducer_;
};

/// Runs both on the same steps. `uses_side(step, rank)` says who uses the side branch.
template <typename UsesSide>
void compare(const DataParallelOptions& options, bool find_unused, UsesSide uses_side) {
  Runtime& runtime = testing::runtime();
  auto ours = std::make_shared<Network>();
  Network theirs;
  DataParallel parallel(runtime.communicator(), ours, options);
  C10dParallel reference(theirs, find_unused);
  for (int step = 0; step < 4; ++step) {
    const Tensor input = batch(step, runtime.rank());
    const bool side = uses_side(step, runtime.rank());
    ours->zero_grad();
    theirs.zero_grad();
    loss_of(ours->forward(input, side)).backward();
    parallel.finish();
    reference.backward(theirs.forward(input, side));

    const std::vector<Tensor> mine = gradients(*ours), expected = gradients(theirs);
    for (size_t i = 0; i < mine.size(); ++i) {
      SCOPED_TRACE(c10::str("step ", step, ", parameter ", i));
      ASSERT_EQ(mine[i].defined(), expected[i].defined());
      if (!mine[i].defined()) {
        continue;
      }
      ASSERT_GT(expected[i].abs().max().item<float>(), 0.0F);
      if (runtime.size() == 2) {  // one sum of two numbers: the same bits in any order
        EXPECT_TRUE(mine[i].equal(expected[i]));
      } else {
        EXPECT_TRUE(at::allclose(mine[i], expected[i], /*rtol=*/1e-6, /*atol=*/1e-7));
      }
    }
  }
}

DataParallelOptions small_buckets() {
  return DataParallelOptions().buckets(
      BucketOptions().first_bucket_bytes(1 << 10).bucket_bytes(6 << 10));
}

TEST(C10dReducer, AveragesTheSameGradients) {
  compare(small_buckets(), /*find_unused=*/false, [](int, int) { return true; });
}

TEST(C10dReducer, CountsAParameterAsZeroOnRanksThatDoNotUseIt) {
  compare(small_buckets().unused(UnusedParameters::detect), /*find_unused=*/true,
          [](int step, int rank) { return rank == step % 2; });
}

}  // namespace
}  // namespace lockstep
