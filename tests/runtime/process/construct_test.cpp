// Runtime::construct(): models that are made by one rank of a node at a time.
#include <ATen/CPUGeneratorImpl.h>
#include <fcntl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <thread>

#include "error_of.h"
#include "file_limit.h"
#include "mapped_memory.h"
#include "runtime/across_ranks.h"
#include "runtime/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::mapped_at;

/// Of some pages; one parameter lies in memory with another stride, one is empty.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width = 64) {
    first = register_module("first", torch::nn::Linear(width, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    last = register_parameter("last",
                              at::empty_strided({4, width}, {1, 4}).copy_(at::randn({4, width})));
    register_parameter("none", at::empty({0}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::linear(norm->forward(first->forward(x)), last);
  }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor last;
};
TORCH_MODULE(Net);

std::vector<at::Tensor> tensors_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> all = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) {
    all.push_back(buffer);
  }
  return all;
}

void expect_same(const torch::nn::Module& net, const torch::nn::Module& expected) {
  const std::vector<at::Tensor> mine = tensors_of(net);
  const std::vector<at::Tensor> theirs = tensors_of(expected);
  ASSERT_EQ(mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(at::equal(mine[i], theirs[i]));
    EXPECT_EQ(mine[i].strides(), theirs[i].strides());
    EXPECT_EQ(mine[i].requires_grad(), theirs[i].requires_grad());
    EXPECT_EQ(mine[i].is_leaf(), theirs[i].is_leaf());
  }
}

/// True on every rank if the ranks have `tensor` in the same memory.
bool is_shared(const at::Tensor& tensor) {
  const auto files =
      testing::runtime().control().all_gather_bytes(mapped_at(tensor.const_data_ptr()).file);
  return files[0].find(" 0") == std::string::npos &&
         files == std::vector<std::string>(files.size(), files[0]);
}

bool has_private_pages(const at::Tensor& tensor) {
  return mapped_at(tensor.const_data_ptr()).anonymous != 0;
}

TEST(Construct, HasTheWeightsAndRandomNumbersOfPlainConstruction) {
  at::manual_seed(5);
  const Net plain;
  const at::Tensor drawn = at::rand({3});
  at::manual_seed(5);
  const Net net = testing::runtime().construct([] { return Net(); });
  EXPECT_TRUE(at::equal(at::rand({3}), drawn));
  expect_same(*net, *plain);
}

TEST(Construct, TakesPointersToModules) {
  at::manual_seed(5);
  const Net plain;
  at::manual_seed(5);
  const auto net = testing::runtime().construct([] { return std::make_shared<NetImpl>(); });
  expect_same(*net, *plain);
  at::manual_seed(5);
  const auto only = testing::runtime().construct([] { return std::make_unique<NetImpl>(); });
  expect_same(*only, *plain);
}

TEST(Construct, LeavesOneCopyOfTheParameters) {
  at::manual_seed(5);
  const Net net = testing::runtime().construct([] { return Net(); });
  const bool several = testing::runtime().size() > 1;
  for (const at::Tensor& weight : {net->first->weight, net->norm->weight, net->last}) {
    EXPECT_EQ(is_shared(weight), several);
    EXPECT_NE(has_private_pages(weight), several);
  }
}

TEST(Construct, GivesThePrivateMemoryBack) {
  if (testing::runtime().size() == 1) {
    return;
  }
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  const auto anonymous = [] {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      if (word == "RssAnon:") {
        int64_t kilobytes = 0;
        status >> kilobytes;
        return kilobytes;
      }
    }
    return int64_t{-1};
  };
  const int64_t before = anonymous();
  const auto net = testing::runtime().construct([] { return torch::nn::Linear(2048, 2048); });
  EXPECT_LT(anonymous() - before, 8 * 1024);  // of 16 MiB of weights
  EXPECT_TRUE(is_shared(net->weight));
}

TEST(Construct, RunsOnOneRankAtATime) {
  const Communicator& control = testing::runtime().control();
  const testing::TemporaryFolder folder;
  const std::string inside = control.all_gather_bytes(folder.path())[0] + "/inside";
  testing::runtime().construct([&] {
    const int file = open(inside.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    EXPECT_GE(file, 0) << "another rank is making its model";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    close(file);
    std::remove(inside.c_str());
    return Net();
  });
  control.barrier().wait();  // the folder of rank 0
}

TEST(Construct, AWriteStaysWithItsRank) {
  at::manual_seed(5);
  const Net net = testing::runtime().construct([] { return Net(); });
  const at::NoGradGuard no_grad;
  net->first->weight.fill_(testing::runtime().rank());
  testing::runtime().control().barrier().wait();
  EXPECT_TRUE(net->first->weight.eq(testing::runtime().rank()).all().item<bool>());
}

TEST(Construct, WeightsThatDifferBetweenRanksStayAsTheyAre) {
  const int rank = testing::runtime().rank();
  at::manual_seed(5 + rank);
  const Net plain;
  at::manual_seed(5 + rank);
  const Net net = testing::runtime().construct([] { return Net(); });
  expect_same(*net, *plain);
  if (testing::runtime().size() > 1) {
    EXPECT_FALSE(is_shared(net->last));
    EXPECT_TRUE(is_shared(net->norm->weight));  // ones on every rank
  }
}

TEST(Construct, ModelsOfDifferentSizesStayAsTheyAre) {
  const int64_t width = 64 + 8 * testing::runtime().rank();
  at::manual_seed(5);
  const Net plain(width);
  at::manual_seed(5);
  const Net net = testing::runtime().construct([&] { return Net(width); });
  expect_same(*net, *plain);
}

TEST(Construct, ParametersThatShareMemoryStillDo) {
  const auto net = testing::runtime().construct([] {
    auto module = std::make_shared<torch::nn::Module>();
    const at::Tensor both = at::ones({2, 5});
    module->register_parameter("whole", both);
    module->register_parameter("row", both.detach()[0]);
    const at::Tensor tied = module->register_parameter("tied", at::ones({3}));
    module->register_parameter("again", tied);
    return module;
  });
  const auto parameters = net->named_parameters();
  EXPECT_TRUE(parameters["row"].is_alias_of(parameters["whole"]));
  EXPECT_TRUE(parameters["tied"].is_same(parameters["again"]));
}

TEST(Construct, WithoutRoomInSharedMemoryEachRankHasACopyAndOneLineSaysSo) {
  if (testing::runtime().size() == 1) {
    return;
  }
  at::manual_seed(5);
  const Net plain;
  at::manual_seed(5);
  ::testing::internal::CaptureStderr();
  std::optional<Net> net;
  {
    const testing::FileLimit limit(4096);
    net = testing::runtime().construct([] { return Net(); });
  }
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.find("construct(): ") != std::string::npos, testing::runtime().is_main()) << line;
  EXPECT_FALSE(is_shared((*net)->last));
  expect_same(**net, *plain);
}

TEST(Construct, AFailureOfOneRankIsOneOfAll) {
  const int failing = testing::runtime().size() - 1;
  const std::string text = error_of([&] {
    testing::runtime().construct([&] {
      LOCKSTEP_CHECK(testing::runtime().rank() != failing, "no such config");
      return Net();
    });
  });
  EXPECT_THAT(text, AllOf(HasSubstr("construct()"), HasSubstr("no such config"),
                          HasSubstr("rank " + std::to_string(failing))));
  EXPECT_NO_THROW(testing::runtime().construct([] { return Net(); }));
}

TEST(Construct, WrappersLeaveEqualWeightsShared) {
  at::manual_seed(5);
  const Net net = testing::runtime().construct([] { return Net(); });
  const DataParallel wrapped(testing::runtime().communicator(), net);
  EXPECT_EQ(is_shared(net->last), testing::runtime().size() > 1);
  EXPECT_NE(has_private_pages(net->last), testing::runtime().size() > 1);
}

}  // namespace
}  // namespace lockstep
