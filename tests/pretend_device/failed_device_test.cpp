// A device that fails in the middle of something: what the rank says and how it ends, whatever it
// was doing.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/data/impl/device_copies.h>
#include <lockstep/runtime/trainer.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fault.h"
#include "operators.h"
#include "runtime/cuda_runs.h"
#include "test_names.h"

namespace lockstep::pretend {
namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
constexpr const char* kWords = "an illegal memory access was encountered";

class FailedDevice : public ::testing::Test {
 protected:
  void TearDown() override { mend(); }
};

/// What a rank reports whose device fails at an operation of `work`; null if it ends before.
std::optional<Error> failure_at(int64_t operation, const std::function<void()>& work) {
  plant({operation});
  try {
    work();
    return std::nullopt;
  } catch (const std::exception&) {
    return detail::as_error(std::current_exception());
  }
}

/// Each operation of `work` fails once. A destructor that throws would end the test program.
void expect_the_devices_words_at_each_operation(const std::function<void()>& work) {
  plant({1'000'000});
  work();
  const int64_t operations = mend();
  ASSERT_GT(operations, 0);
  for (int64_t at = 0; at < operations; at += 1 + operations / 40) {
    const std::optional<Error> failure = failure_at(at, work);
    mend();
    ASSERT_TRUE(failure.has_value()) << "operation " << at << " of " << operations;
    EXPECT_EQ(failure->code(), ExitCode::peer_lost) << failure->what();
    EXPECT_THAT(failure->what(), HasSubstr(kWords));
  }
}

TEST_F(FailedDevice, IsNamedAtEachOperationOfATraining) {
  expect_the_devices_words_at_each_operation([] {
    Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
    testing::DeviceRun run(runtime, TrainerOptions()
                                        .precision(Precision::O2())
                                        .unused(UnusedParameters::detect)
                                        .compare_replicas_every(1)
                                        .schedule(ScheduleFunction([](int64_t) { return 0.5; })));
    for (int64_t step = 0; step < 4; ++step) {
      run.trainer->set_learning_rate(0.01 * static_cast<double>(step + 1));
      run.step(step);
    }
    run.trainer->finish_saving();
  });
}

TEST_F(FailedDevice, IsNamedAtEachOperationOfCapturedSteps) {
  expect_the_devices_words_at_each_operation([] {
    Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
    at::manual_seed(11);
    const auto model = std::make_shared<testing::Mlp>(16);
    Trainer trainer(runtime, model, AdamW(1e-2), TrainerOptions().cuda_graph(true));
    for (int64_t step = 0; step < 6; ++step) {
      const auto [x, y] = testing::rows_of(step, 0, 32);
      trainer.step({x, y}, [&](const std::vector<at::Tensor>& in) -> Loss {
        return model->loss(in[0], in[1]);
      });
    }
  });
}

TEST_F(FailedDevice, GivesNoPageLockedMemoryBack) {
  at::Tensor host = detail::host_memory_for(kDevice, {4}, at::kFloat);
  at::Tensor taken = moved(at::ones({4}), kDevice);
  failure_at(0, [&] { taken.add_(1.0F); });
  host = at::Tensor();
  EXPECT_THROW(at::ones({4}, kDevice), c10::AcceleratorError);
}

/// The tensor belongs to the program; another stream has used it, so that giving it back throws.
TEST(FailedDeviceDeathTest, EndsARunWithTheDevicesWordsAndCode) {
  const auto body = [](Runtime&) {
    DeviceCopies copies(DeviceCopies::stream_of(kDevice));
    const at::Tensor x = copies.add(DeviceCopies::page_locked(at::ones({8}), kDevice));
    copies.close();
    copies.hand_over();
    plant({0});
    x.add(1.0F);
  };
  EXPECT_EXIT(std::exit(run(0, nullptr, RuntimeOptions().device(DeviceKind::cuda), body)),
              ::testing::ExitedWithCode(20), kWords);
}

struct Rows {
  int64_t size() const { return 64; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    return {at::full({4}, static_cast<double>(index)), at::full({2}, 0.5)};
  }
};

/// The batches of a loader are used on two streams.
TEST(FailedDeviceDeathTest, EndsARunWhoseLoaderCopiesAhead) {
  for (const int64_t operation : {0, 5, 14}) {
    const auto body = [&](Runtime& runtime) {
      auto loader = runtime.loader(Rows(), LoaderOptions().batch_size(8).prefetch(2));
      plant({operation});
      for (auto& [x, y] : loader) {
        x.sum().item<float>();
      }
    };
    EXPECT_EXIT(std::exit(run(0, nullptr, RuntimeOptions().device(DeviceKind::cuda), body)),
                ::testing::ExitedWithCode(20), kWords);
  }
}

/// One of two ranks waits for the other when its device fails.
TEST_F(FailedDevice, EndsAWaitForPeersWhoAreToldTheRank) {
  detail::watch_device(kDevice);
  std::vector<Communicator> ranks = Communicator::threads(2);
  const at::Tensor sum = at::ones({1});
  Work early = ranks[1].all_reduce(sum);
  const auto failure = failure_at(0, [&] {
    try {
      at::ones({1}, kDevice);
    } catch (const c10::AcceleratorError&) {
      early.wait();
    }
  });
  mend();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code(), ExitCode::peer_lost);
  EXPECT_THAT(failure->what(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr(kWords)));
  std::string told;
  try {
    ranks[0].all_reduce(at::ones({1})).wait();  // rank 1 has brought its part
    ranks[0].all_reduce(at::ones({1})).wait();
  } catch (const CommunicationError& error) {
    told = error.what();
  }
  EXPECT_THAT(told, AllOf(HasSubstr("rank 1"), HasSubstr(kWords)));
}

TEST(DeviceCopiesOnAPretendDevice, AllUseOneStream) {
  EXPECT_EQ(DeviceCopies::stream_of(kDevice), DeviceCopies::stream_of(kDevice));
}

}  // namespace
}  // namespace lockstep::pretend
