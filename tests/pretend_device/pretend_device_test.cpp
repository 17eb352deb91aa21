// That the pretend device notices what a real one would suffer from.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/batch.h>

#include <cstdlib>
#include <functional>
#include <limits>

#include "operators.h"
#include "recording.h"
#include "runtime/cuda_runs.h"
#include "test_names.h"

namespace lockstep::pretend {
namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
const auto kThere = at::TensorOptions().device(kDevice);

c10::Stream side_stream() {
  return c10::impl::VirtualGuardImpl(kDevice.type()).getStreamFromGlobalPool(kDevice);
}

c10::Event behind(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

c10::Stream default_stream() {
  return c10::impl::VirtualGuardImpl(kDevice.type()).getDefaultStream(kDevice);
}

/// What LibTorch's error says; empty: there is none.
template <typename F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

TEST(PretendDeviceDeathTest, StopsAHostThatTouchesItsMemory) {
  const at::Tensor x = at::zeros({4}, kThere);
  EXPECT_DEATH(*static_cast<volatile float*>(x.mutable_data_ptr()) = 1.0F, "");
  EXPECT_DEATH(std::exit(*static_cast<const volatile float*>(x.const_data_ptr()) == 0.0F), "");
}

TEST(PretendDevice, TakesNoTensorsOfTheHostBesideItsOwn) {
  const at::Tensor x = at::ones({4}, kThere);
  EXPECT_THAT(refusal([&] { x.add(at::ones({4})); }), HasSubstr("on the same device"));
  EXPECT_TRUE(at::equal(x.add(at::full({}, 2.0F)).cpu(), at::full({4}, 3.0F)));
}

TEST(PretendDevice, FindsStreamsThatNoEventOrders) {
  const c10::Stream side = side_stream();
  at::Tensor x = at::ones({4}, kThere);
  const auto read_aside = [&] {
    const c10::StreamGuard on(side);
    return x.add(1.0F);
  };
  EXPECT_THAT(refusal(read_aside), HasSubstr("no event says which is first"));
  behind(default_stream()).block(side);
  const at::Tensor y = read_aside();
  EXPECT_THAT(refusal([&] { x.zero_(); }), HasSubstr("no event says which is first"));
  behind(side).block(default_stream());
  x.zero_();
}

TEST(PretendDevice, FindsMemoryThatIsUsedAgainTooEarly) {
  const c10::Stream side = side_stream();
  for (const bool recorded : {false, true}) {
    at::Tensor x = at::ones({12345}, kThere);
    behind(default_stream()).block(side);
    {
      const c10::StreamGuard on(side);
      x.mul(2.0F);
    }
    if (recorded) {
      x.record_stream(side);
    }
    x.reset();
    const auto again = [] { at::ones({12345}, kThere); };
    EXPECT_EQ(refusal(again).empty(), recorded);
    behind(side).block(default_stream());
  }
}

TEST(PretendDevice, WritesPageLockedMemoryWhenTheHostHasWaited) {
  const at::Tensor x = at::ones({4}, kThere);
  const at::Tensor host = at::empty({4}, at::TensorOptions().pinned_memory(true));
  at::Tensor(host).copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(host.isnan().all().item<bool>());
  const c10::Event done = behind(default_stream());
  EXPECT_FALSE(done.query());
  EXPECT_TRUE(host.isnan().all().item<bool>());
  EXPECT_TRUE(done.query());
  EXPECT_TRUE(at::equal(host, at::ones({4})));
}

TEST(ToDevice, ReturnsFromACopyToTheHostWhenTheDataIsThere) {
  const at::Tensor x = at::ones({4}, kThere);
  EXPECT_TRUE(at::equal(moved(x, at::kCPU), at::ones({4})));
  const std::vector<at::Tensor> batch = moved(std::vector<at::Tensor>{x, x}, at::kCPU);
  EXPECT_TRUE(at::equal(batch[1], at::ones({4})));
}

TEST(PretendDevice, HasNoZerosInFreshMemory) {
  EXPECT_TRUE(at::empty({100}, kThere).cpu().isnan().all().item<bool>());
}

TEST(PretendDevice, DoesRecordedWorkOnlyWhenItIsReplayed) {
  const at::Tensor x = at::zeros({4}, kThere);
  at::Tensor last;
  const Recording recording = record([&] { last = x.add_(at::rand({4}, kThere)).mul(2.0F); });
  EXPECT_TRUE(at::equal(x.cpu(), at::zeros({4})));
  for (int round = 0; round < 2; ++round) {
    const at::Tensor before = x.cpu();
    for (const auto& work : recording) {
      work();
    }
    EXPECT_TRUE(x.cpu().gt(before).all().item<bool>());
    EXPECT_TRUE(at::equal(last.cpu(), x.cpu().mul(2.0F)));
  }
  EXPECT_THAT(refusal([&] { record([&] { x.sum().item<float>(); }); }), HasSubstr("capturing"));
}

TEST(PretendDevice, TakesNoMemoryOfTheHostInARecording) {
  const at::Tensor x = at::zeros({4}, kThere);
  const at::Tensor host = at::ones({4});
  const at::Tensor pinned = host.pin_memory();
  const at::Tensor rows = at::ones({2}, at::kLong);
  const std::function<void()> works[] = {
      [&] { at::Tensor(x).copy_(host); }, [&] { host.to(kDevice, /*non_blocking=*/true); },
      [&] { at::Tensor(x).copy_(pinned, true); }, [&] { host.to(kDevice, at::kHalf); },
      [&] { x.index({rows}); }};
  for (const auto& work : works) {
    EXPECT_THAT(refusal([&] { record(work); }), HasSubstr("reads memory of the host"));
  }
  EXPECT_EQ(refusal([&] { record([&] { x.mul(2.0).add(at::full({}, 3.0F)); }); }), "");
}

TEST(TrainerOnAPretendDevice, DoesNotWaitForItInAnyStep) {
  Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cuda));
  for (const Precision& precision : {Precision::O0(), Precision::O2()}) {
    lockstep::testing::DeviceRun run(
        runtime, TrainerOptions().precision(precision).accumulate(2).clip_grad_norm(1.0).schedule(
                     WarmupCosine(5, 100)));
    auto [x, y] = run.trainer->to_device(lockstep::testing::rows_of(0, 0, 32));
    const float overflow = std::numeric_limits<float>::infinity();
    const int64_t before = host_waits();
    for (int step = 0; step < 12; ++step) {
      run.trainer->step(
          [&, x = x, y = y] { return run.model->loss(x, y) * (step == 6 ? overflow : 1.0F); });
    }
    EXPECT_EQ(host_waits(), before);
  }
}

}  // namespace
}  // namespace lockstep::pretend
