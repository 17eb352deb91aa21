// Batches that a loader copies to a device ahead of the loop.
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data/impl/device_copies.h>

#include <atomic>
#include <memory>
#include <vector>

#include "error_of.h"
#include "operators.h"
#include "runtime/cuda_runs.h"
#include "test_names.h"

namespace lockstep::pretend {
namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

Runtime on_the_device() {
  return Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
}

struct Rows {
  int64_t size() const { return 64; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    return {at::full({4}, static_cast<double>(index)), at::full({2}, 0.5)};
  }
};

TEST(PrefetchOnAPretendDevice, AnEventOrdersTheCopiesBeforeTheirUse) {
  DeviceCopies copies(DeviceCopies::stream_of(kDevice));
  const at::Tensor x = copies.add(DeviceCopies::page_locked(at::arange(8).to(at::kFloat), kDevice));
  copies.close();
  ASSERT_TRUE(x.is_cuda());
  std::string refusal;
  try {
    x.add(1.0F);
  } catch (const c10::Error& error) {
    refusal = error.what_without_backtrace();
  }
  EXPECT_THAT(refusal, HasSubstr("no event says which is first"));
  copies.hand_over();
  EXPECT_TRUE(at::equal(x.add(1.0F).cpu(), at::arange(8).to(at::kFloat).add(1.0F)));
}

TEST(PrefetchOnAPretendDevice, TensorsWithoutAMemoryOfTheirOwnAreNamed) {
  for (const at::Tensor& odd : {at::eye(4).to_sparse(), at::eye(4).to_sparse_csr()}) {
    EXPECT_THAT(testing::error_of([&] { DeviceCopies::page_locked(odd, kDevice); }),
                AllOf(HasSubstr("prefetched"), HasSubstr("the layout Sparse")));
  }
}

TEST(PrefetchOnAPretendDevice, GivesTheLoopItsBatchesOnTheDevice) {
  Runtime runtime = on_the_device();
  for (const int depth : {1, 3}) {
    auto loader = runtime.loader(Rows(), LoaderOptions().batch_size(4).prefetch(depth).epochs(4));
    int64_t row = 0;
    for (auto& [x, y] : loader) {
      ASSERT_TRUE(x.is_cuda());
      ASSERT_TRUE(y.is_cuda());
      // Read once more when the batch is dropped: its memory goes to the next copies in time.
      const at::Tensor sums = (x + 1.0F).mul(x).sum() * 0.0F + x.select(1, 0);
      EXPECT_TRUE(at::equal(sums.cpu(), at::arange(row, row + 4).to(at::kFloat)));
      row = (row + 4) % 64;
    }
  }
}

TEST(PrefetchOnAPretendDevice, BatchesStayOnTheHostWithout) {
  Runtime runtime = on_the_device();
  for (const auto& options : {LoaderOptions(), LoaderOptions().workers(2)}) {
    auto loader = runtime.loader(Rows(), options);
    EXPECT_TRUE((*loader.begin()).first.is_cpu());
  }
}

struct Named {
  int64_t size() const { return 8; }
  struct Sample {
    at::Tensor x;
    int64_t name;
  };
  Sample get(size_t index) const { return {at::ones({2}), static_cast<int64_t>(index)}; }
};

TEST(PrefetchOnAPretendDevice, LeavesTypesThatItDoesNotKnowOnTheHost) {
  Runtime runtime = on_the_device();
  auto loader =
      runtime.loader(Named(), LoaderOptions().batch_size(2).prefetch(2).compare_ranks(false));
  int64_t name = 0;
  for (auto& batch : loader) {
    EXPECT_EQ(batch[1].name, ++name);
    EXPECT_TRUE(batch[1].x.is_cpu());
    ++name;
  }
  EXPECT_EQ(name, 8);
}

/// Sample 13 cannot be read the first time.
struct BrokenOnce {
  std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(0);
  int64_t size() const { return 32; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    LOCKSTEP_CHECK(index != 13 || (*reads)++ > 0, "a broken sample");
    return Rows().get(index);
  }
};

TEST(PrefetchOnAPretendDevice, ASampleThatCannotBeReadIsToldAtItsBatchAndReadAgain) {
  Runtime runtime = on_the_device();
  auto loader = runtime.loader(BrokenOnce(), LoaderOptions().batch_size(4).prefetch(6));
  std::vector<float> first;
  const auto loop = [&] {
    for (auto& [x, y] : loader) {
      first.push_back(x.select(0, 0).select(0, 0).item<float>());
    }
  };
  EXPECT_THAT(testing::error_of(loop), HasSubstr("a broken sample"));
  EXPECT_THAT(first, ElementsAre(0.0F, 4.0F, 8.0F));
  loop();
  EXPECT_THAT(first, ElementsAre(0.0F, 4.0F, 8.0F, 12.0F, 16.0F, 20.0F, 24.0F, 28.0F));
}

thread_local bool is_loop = false;
thread_local bool counts = false;
std::atomic<int64_t> pins = 0;
std::atomic<int64_t> copies_of_workers = 0;

TEST(PrefetchOnAPretendDevice, TrainsWithTheSameBitsAndTheLoopNeitherPinsNorWaits) {
  is_loop = true;
  Runtime runtime = on_the_device();
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        const std::string name = function.name();
        pins += counts && name == "aten::_pin_memory" ? 1 : 0;
        copies_of_workers += !is_loop && name == "aten::_to_copy" ? 1 : 0;
        return nullptr;
      }));
  std::vector<at::Tensor> masters;
  for (const int depth : {0, 2}) {
    lockstep::testing::DeviceRun run(runtime, TrainerOptions());
    auto loader =
        runtime.loader(Rows(), LoaderOptions().batch_size(4).prefetch(depth).shuffle(true));
    const int64_t waits = host_waits();
    pins = 0;
    auto iterator = loader.begin();
    while (iterator != loader.end()) {
      counts = true;
      const auto batch = run.trainer->to_device(*iterator);
      counts = false;
      run.trainer->step([&] { return run.model->loss(batch.first, batch.second); });
      counts = true;
      ++iterator;
      counts = false;
    }
    EXPECT_EQ(host_waits(), waits);
    EXPECT_EQ(pins > 0, depth == 0);
    masters.push_back(run.masters());
  }
  at::removeCallback(handle);
  EXPECT_EQ(copies_of_workers, 0) << "of a failed device one thread alone may ask for memory";
  EXPECT_TRUE(at::equal(masters[0], masters[1]));
}

}  // namespace
}  // namespace lockstep::pretend
