// Which device a rank gets, and what is said when there is none for it. Drivers are made up.
#include <ATen/ATen.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/device_world.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/process/impl/environment.h>
#include <lockstep/runtime/process/impl/identity.h>
#include <lockstep/runtime/process/own/device_arithmetic.h>
#include <lockstep/runtime/process/own/device_choice.h>
#include <lockstep/runtime/runtime.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

template <typename Body>
std::string environment_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
    return error.what();
  }
  return "no error";
}

TEST(DeviceChoice, IsTheOnlyVisibleOneOrTheOneOfTheLocalRank) {
  EXPECT_EQ(choose_device(0, 1, 1, ""), 0);
  EXPECT_EQ(choose_device(5, 8, 1, ""), 0) << "the launcher shows each rank its own";
  EXPECT_EQ(choose_device(0, 8, 8, ""), 0);
  EXPECT_EQ(choose_device(5, 8, 8, ""), 5);
  EXPECT_EQ(choose_device(1, 2, 8, ""), 1);
}

TEST(DeviceChoice, SaysWhatIsVisibleWhereThereIsNoneForARank) {
  EXPECT_THAT(environment_error([] { choose_device(2, 3, 2, ""); }),
              HasSubstr("local rank 2 of 3 on this node sees 2 CUDA devices"));
  EXPECT_THAT(environment_error([] { choose_device(0, 1, 0, "there is no driver"); }),
              HasSubstr("sees no CUDA device: there is no driver"));
}

TEST(DeviceChoice, SaysWhyNoDeviceIsVisible) {
  EXPECT_THAT(why_no_device({false, 13000, 0}), HasSubstr("this LibTorch is for CPUs"));
  EXPECT_THAT(why_no_device({true, std::nullopt, 13000}), HasSubstr("no libcuda.so.1"));
  EXPECT_THAT(why_no_device({true, 12090, 13000}), HasSubstr("install a newer driver"));
  EXPECT_THAT(why_no_device({true, 13000, 13020}), HasSubstr("CUDA_VISIBLE_DEVICES hides all"));
  for (const auto& [error, advice] :
       {std::pair(802, "nvidia-fabricmanager"), {803, "reboot"}, {999, "nvidia_uvm"}}) {
    DriverVersions broken{true, 13000, 13000};
    broken.answer = {true, 13000, error, 0, c10::str("the driver reports error ", error)};
    EXPECT_THAT(why_no_device(broken),
                AllOf(HasSubstr(c10::str("the driver reports error ", error)), HasSubstr(advice)));
    EXPECT_FALSE(wants_no_device(broken));
    broken.list = "0,1";
    EXPECT_THAT(why_no_device(broken), HasSubstr(advice)) << "the list is not the reason";
  }
  DriverVersions hidden{true, 12040, 13000};
  hidden.list = "7";
  hidden.answer = {true, 12040, 0, 2, ""};
  EXPECT_THAT(why_no_device(hidden), HasSubstr("install a newer driver"));
  hidden.answer = {true, 13000, 100, 0, "the driver reports error 100"};
  EXPECT_THAT(why_no_device(hidden), HasSubstr("CUDA_VISIBLE_DEVICES=7 leaves none"));
  EXPECT_EQ(driver_versions().libtorch_has_cuda, driver_versions().runtime > 0);
}

TEST(DeviceChoice, NoDeviceIsWantedWhereTheListIsEmptyOrLibTorchIsForCpus) {
  DriverVersions versions{true, 13000, 13000};
  EXPECT_FALSE(wants_no_device(versions));
  for (const auto& [list, empty] : {std::pair("", true),
                                    {"-1", true},
                                    {"NoDevFiles", true},
                                    {"0", false},
                                    {"17", false},
                                    {"GPU-0123", false}}) {
    versions.list = list;
    EXPECT_EQ(wants_no_device(versions), empty) << list;
  }
  EXPECT_TRUE(wants_no_device({false, 13000, 0}));
}

TEST(DeviceCode, IsThereForADeviceOfAnArchitectureThatLibTorchIsBuiltFor) {
  const std::string wheel =
      "-gencode;arch=compute_75,code=sm_75;-gencode;arch=compute_80,code=sm_80;"
      "-gencode;arch=compute_90,code=sm_90;-gencode;arch=compute_100,code=sm_100;"
      "-gencode;arch=compute_120,code=sm_120";
  for (const auto& [major, minor] :
       {std::pair(7, 5), {8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}}) {
    EXPECT_EQ(why_no_code(major, minor, wheel), "") << major << "." << minor;
  }
  for (const auto& [major, minor] : {std::pair(3, 5), {6, 1}, {7, 0}, {7, 2}}) {
    EXPECT_THAT(why_no_code(major, minor, wheel),
                AllOf(HasSubstr(c10::str("is ", major, ".", minor,
                                         ", this LibTorch has code for 7.5, 8.0")),
                      HasSubstr("a torch wheel for an older CUDA")));
  }
  for (const auto& [major, minor] : {std::pair(11, 0), {13, 0}}) {
    EXPECT_THAT(why_no_code(major, minor, wheel), HasSubstr("a torch wheel for a newer CUDA"));
    EXPECT_EQ(why_no_code(major, minor, wheel + ";-gencode;arch=compute_90,code=compute_90"), "");
  }
  EXPECT_NE(why_no_code(9, 1, "-gencode;arch=compute_90a,code=sm_90a"), "");
  EXPECT_EQ(why_no_code(9, 0, "-gencode;arch=compute_90a,code=sm_90a"), "");
  EXPECT_EQ(why_no_code(10, 3, "-gencode;arch=compute_100f,code=sm_100f"), "");
  EXPECT_NE(why_no_code(12, 0, "-gencode;arch=compute_100f,code=compute_100f"), "");
  EXPECT_EQ(why_no_code(7, 0, ""), "") << "an unknown build";
}

TEST(DeviceChoice, NamesTheRanksThatHaveTheSameDevice) {
  EXPECT_EQ(shared_device({"a", "b", "c"}), "");
  EXPECT_THAT(shared_device({"a", "b", "c", "b"}),
              HasSubstr("ranks 1 and 3 have the same device b"));
  EXPECT_EQ(shared_device({"GPU-a@0000:41:00.0/x", "GPU-b@0000:41:00.0/x"}), "") << "two slices";
}

TEST(DeviceArithmetic, IsPyTorchsByDefault) {
  at::Context& context = at::globalContext();
  const bool tf32_convolutions = context.allowTF32CuDNN();
  const auto products = context.float32MatmulPrecision();
  const bool benchmark = context.benchmarkCuDNN();
  EXPECT_TRUE(tf32_convolutions);
  for (const bool before : {true, false}) {
    set_arithmetic(RuntimeOptions().tf32(before).cudnn_benchmark(before),
                   c10::Device(c10::kCUDA, 0));
    set_arithmetic({}, c10::Device(c10::kCUDA, 0));
    EXPECT_EQ(context.allowTF32CuDNN(), tf32_convolutions);
    EXPECT_EQ(context.float32MatmulPrecision(), products);
    EXPECT_EQ(context.benchmarkCuDNN(), benchmark);
  }
}

TEST(DeviceArithmetic, SaysThatAVariableIsNotFollowed) {
  const c10::Device device(c10::kCUDA, 0);
  EXPECT_EQ(set_arithmetic({}, device), "");
  for (const char* value : {"1", "0"}) {
    ::setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", value, 1);
    const std::string notice = set_arithmetic({}, device);
    EXPECT_EQ(notice.find("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1") == 0, *value == '1') << notice;
    EXPECT_EQ(set_arithmetic({}, c10::kCPU), "");
    for (const bool named : {false, true}) {
      EXPECT_EQ(set_arithmetic(RuntimeOptions().tf32(named), device), "");
    }
  }
  ::unsetenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE");
  set_arithmetic({}, device);
}

TEST(DeviceArithmetic, FollowsTheOptionsOnADeviceOnly) {
  at::Context& context = at::globalContext();
  const c10::Device device(c10::kCUDA, 0);
  set_arithmetic(RuntimeOptions().tf32(true).cudnn_benchmark(true), device);
  EXPECT_TRUE(context.allowTF32CuDNN());
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGH);
  EXPECT_TRUE(context.benchmarkCuDNN());
  set_arithmetic({}, c10::kCPU);
  EXPECT_TRUE(context.benchmarkCuDNN());
  set_arithmetic(RuntimeOptions().tf32(false), device);
  EXPECT_FALSE(context.allowTF32CuDNN());
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  EXPECT_FALSE(context.benchmarkCuDNN());
  EXPECT_FALSE(context.deterministicAlgorithms());
  set_arithmetic(RuntimeOptions().deterministic(true), c10::kCPU);
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_EQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), nullptr);
  set_arithmetic(RuntimeOptions().deterministic(true), device);
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", /*overwrite=*/1);
  set_arithmetic(RuntimeOptions().deterministic(true), device);
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":16:8") << "the user's own";
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  context.setDeterministicAlgorithms(false, false);
  context.setDeterministicCuDNN(false);
}

/// Two ranks that are threads, each with its own driver; the text of what each one threw.
std::vector<std::string> bind_on_two_ranks(
    DeviceKind kind, bool may_share, const std::function<DeviceDriver(int rank)>& driver,
    const std::function<void(int rank, const BoundDevice&)>& check = [](int, const BoundDevice&) {
    }) {
  std::vector<Communicator> ranks = Communicator::threads(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int k = 0; k < 2; ++k) {
    threads.emplace_back([&, k, own = ranks[static_cast<size_t>(k)]]() mutable {
      try {
        check(k, bind_device(kind, may_share, own, driver(k)));
      } catch (const Error& error) {
        errors[static_cast<size_t>(k)] = error.what();
      }
    });
  }
  ranks.clear();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

DeviceDriver driver_with(
    int visible, const std::string& prefix,
    std::function<void(c10::Device)> make_current = [](c10::Device) {}) {
  return {[visible] { return visible; },
          [prefix](int index) { return prefix + std::to_string(index); }, std::move(make_current),
          [] {
            return why_no_device({true, 12040, 13000});
          },
          [visible] { return visible; }};
}

TEST(BindDevice, MakesEachRanksOwnDeviceCurrentAndNoOther) {
  std::mutex mutex;
  std::multiset<int> made_current;
  const auto errors = bind_on_two_ranks(
      DeviceKind::cuda, false,
      [&](int) {
        return driver_with(4, "GPU-", [&](c10::Device device) {
          const std::lock_guard<std::mutex> lock(mutex);
          made_current.insert(device.index());
        });
      },
      [](int rank, const BoundDevice& bound) {
        EXPECT_EQ(bound.device, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank)));
        EXPECT_EQ(bound.identity, "GPU-" + std::to_string(rank));
      });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(made_current, (std::multiset<int>{0, 1}));
}

TEST(BindDevice, ARankWithoutADeviceIsAnErrorOnEveryRank) {
  const auto errors = bind_on_two_ranks(
      DeviceKind::cuda, false, [](int rank) { return driver_with(rank == 0 ? 1 : 0, "GPU-"); });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 1: local rank 1 sees no CUDA device: the driver supports "
                                 "CUDA 12.4 at most, LibTorch is built for 13.0"));
  }
}

TEST(BindDevice, VisibleOneOfEightIsFoundByItsIdentity) {
  const auto one_for_all = [](int) { return driver_with(1, "GPU-"); };
  for (const std::string& error : bind_on_two_ranks(DeviceKind::cuda, false, one_for_all)) {
    EXPECT_THAT(error, HasSubstr("ranks 0 and 1 have the same device GPU-0"));
    EXPECT_THAT(error, HasSubstr("LOCKSTEP_SHARE_DEVICE=1"));
  }
  const auto errors = bind_on_two_ranks(DeviceKind::cuda, /*may_share=*/true, one_for_all);
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
  const auto own = [](int rank) { return driver_with(1, "GPU-" + std::to_string(rank)); };
  EXPECT_EQ(bind_on_two_ranks(DeviceKind::cuda, false, own), errors);
}

TEST(BindDevice, ADeviceThatCannotRunLibTorchIsAnErrorOnEveryRankBeforeItIsUsed) {
  const auto errors = bind_on_two_ranks(DeviceKind::automatic, false, [](int rank) {
    DeviceDriver made_up =
        driver_with(2, "GPU-", [](c10::Device) { ADD_FAILURE() << "made current"; });
    made_up.why_no_code = [rank](int index) {
      EXPECT_EQ(index, rank);
      return index == 1 ? why_no_code(7, 0, "code=sm_75") : "";
    };
    return made_up;
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                HasSubstr("rank 1: device cuda:1 cannot run LibTorch: its compute capability "
                          "is 7.0, this LibTorch has code for 7.5"));
  }
}

DeviceDriver driver_without(int present, bool unwanted) {
  DeviceDriver made_up = driver_with(0, "");
  made_up.present = [present] { return present; };
  made_up.unwanted = [unwanted] { return unwanted; };
  return made_up;
}

TEST(AutomaticDevice, ARankWithoutAGpuWhereOthersHaveTheirsIsAnErrorThatNamesIt) {
  for (const int present : {0, 1}) {
    const auto errors = bind_on_two_ranks(DeviceKind::automatic, false, [present](int rank) {
      return rank == 0 ? driver_with(8, "GPU-") : driver_without(present, false);
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("8 GPUs are visible to some ranks; this run cannot use them "
                                   "because rank 1: sees no CUDA device (the driver supports "
                                   "CUDA 12.4"));
      EXPECT_THAT(error, HasSubstr("LOCKSTEP_DEVICE=cpu"));
    }
  }
}

TEST(AutomaticDevice, GpusThatNoRankCanUseAreAnError) {
  for (const std::string& error : bind_on_two_ranks(DeviceKind::automatic, false,
                                                    [](int) { return driver_without(2, false); })) {
    EXPECT_THAT(error, HasSubstr("2 GPUs are in the machine; this run cannot use them because "
                                 "ranks 0-1: sees no CUDA device (the driver supports"));
  }
}

TEST(AutomaticDevice, IsTheCpuWhereThereIsNoGpuOrARankWantsNone) {
  for (const auto& [present, unwanted] : {std::pair(0, false), {0, true}, {2, true}}) {
    const auto errors = bind_on_two_ranks(
        DeviceKind::automatic, false,
        [present = present, unwanted = unwanted](int rank) {
          return driver_without(present, unwanted && rank == 1);
        },
        [present = present](int, const BoundDevice& bound) {
          EXPECT_TRUE(bound.device.is_cpu());
          EXPECT_EQ(bound.notable, present > 0);
          EXPECT_EQ(bound.reason.rfind("2 GPUs are in the machine; ", 0) == 0, present > 0);
          EXPECT_THAT(bound.reason, HasSubstr("because ranks 0-1: sees no CUDA"));
        });
    EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
  }
  const auto errors = bind_on_two_ranks(
      DeviceKind::automatic, false,
      [](int rank) { return rank == 0 ? driver_with(2, "GPU-") : driver_without(2, true); },
      [](int, const BoundDevice& bound) {
        EXPECT_TRUE(bound.device.is_cpu() && bound.notable) << bound.reason;
      });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(AutomaticDevice, IsTheDefaultAndSaysWhatItChoseAndWhyOnEveryRank) {
  EXPECT_EQ(RuntimeOptions().device(), DeviceKind::automatic);
  bind_on_two_ranks(
      DeviceKind::automatic, false, [](int) { return driver_with(8, "GPU-"); },
      [](int, const BoundDevice& bound) {
        EXPECT_TRUE(bound.notable);
        EXPECT_THAT(bound.reason, HasSubstr("8 GPUs are visible; this run is on CUDA devices"));
        EXPECT_THAT(bound.reason, HasSubstr("LOCKSTEP_DEVICE=cpu"));
      });
}

TEST(AutomaticDevice, AKindThatWasAskedForIsNotNotable) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    bind_on_two_ranks(
        kind, false, [](int) { return driver_with(8, "GPU-"); },
        [kind](int, const BoundDevice& bound) {
          EXPECT_EQ(bound.device.is_cpu(), kind == DeviceKind::cpu);
          EXPECT_FALSE(bound.notable);
          EXPECT_THAT(bound.reason, HasSubstr("LOCKSTEP_DEVICE asks"));
        });
  }
}

TEST(AutomaticDevice, GpusInTheMachineAreCountedByTheDriverElseByTheirFiles) {
  const auto count = [](const std::vector<std::string>& names, const CudaDriver& driver) {
    std::string folder = ::testing::TempDir() + "devices-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    for (const std::string& name : names) {
      std::ofstream(folder + "/" + name) << "";
    }
    const int found = gpus_present(folder, driver);
    std::filesystem::remove_all(folder);
    return found;
  };
  const CudaDriver none;
  const auto failing = [](int error) { return CudaDriver{true, 13000, error, 0, "made up"}; };
  for (const CudaDriver& driver : {none, failing(100), failing(999)}) {
    EXPECT_EQ(count({}, driver), 0);
    EXPECT_EQ(count({"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}, driver), 2);
    EXPECT_EQ(count({"nvidia3", "nvidiactl", "nvidia-uvm"}, driver), 1);
    EXPECT_EQ(count({"nvidia0", "nvidia2", "nvidia15", "nvidia-modeset"}, driver), 3);
    EXPECT_EQ(count({"nvidiactl", "nvidia-caps", "nvidia", "nvidia0a"}, driver), 0);
    EXPECT_EQ(count({"dxg"}, driver), driver.error == 999 ? 1 : 0);
    EXPECT_EQ(count({"dxg", "nvidia0", "nvidia4"}, driver), 2);
  }
  const CudaDriver seven{true, 13000, 0, 7, ""};
  EXPECT_EQ(count({"nvidia0"}, seven), 7) << "slices of a GPU";
  EXPECT_EQ(count({"dxg"}, seven), 7);
  for (const int error : {46, 802, 803, 804}) {
    EXPECT_EQ(count({}, failing(error)), 1) << "only where there is a GPU: " << error;
    EXPECT_EQ(count({"nvidia0", "nvidia3"}, failing(error)), 2);
  }
  EXPECT_EQ(gpus_present("/no/such/folder", none), 0);
}

TEST(AutomaticDevice, TheSummarySaysWhyTheRunIsOnItsDevice) {
  EXPECT_THAT(Runtime::solo(RuntimeOptions().device(DeviceKind::cpu)).summary(),
              HasSubstr("a rank: as RuntimeOptions::device or LOCKSTEP_DEVICE asks\n"));
  if (visible_devices() == 0) {
    EXPECT_THAT(Runtime::solo().summary(), HasSubstr("this run is on CPUs because"));
  }
}

TEST(DeviceTransportChoice, IsNcclWhereAllRanksCanUseItTogether) {
  const DeviceRank a{22809, false, "a", ""}, b{22809, false, "b", ""};
  const DeviceRank without{0, false, "c", "a build without NCCL"};
  EXPECT_EQ(choose_transport(DeviceTransport::automatic, {a, b}).transport, DeviceTransport::nccl);
  EXPECT_EQ(choose_transport(DeviceTransport::staged, {a, b}).transport, DeviceTransport::staged);
  EXPECT_EQ(choose_transport(DeviceTransport::staged, {a, a}).reason, "") << "as asked for";
  const DeviceChoice missing = choose_transport(DeviceTransport::automatic, {a, without});
  EXPECT_EQ(missing.transport, DeviceTransport::staged);
  EXPECT_THAT(missing.reason, HasSubstr("rank 1 has none: a build without NCCL"));
  const DeviceChoice shared = choose_transport(DeviceTransport::automatic, {a, a});
  EXPECT_EQ(shared.transport, DeviceTransport::staged);
  EXPECT_THAT(shared.reason, HasSubstr("use one GPU"));
  EXPECT_THAT(environment_error([&] {
                choose_transport(DeviceTransport::nccl, {a, a});
              }),
              HasSubstr("NCCL was asked for, but ranks 0 and 1 use one GPU"));
}

TEST(DeviceTransportChoice, IsAnErrorWhereNcclWouldWaitWithoutADeadline) {
  const DeviceRank a{22809, false, "a", ""}, blocking{22809, false, "b", "", true};
  const DeviceRank without{0, false, "c", "a build without NCCL"};
  for (const DeviceTransport asked : {DeviceTransport::automatic, DeviceTransport::nccl}) {
    EXPECT_THAT(environment_error([&] {
                  choose_transport(asked, {a, blocking});
                }),
                HasSubstr("rank 1 has NCCL_COMM_BLOCKING=1"));
  }
  EXPECT_EQ(choose_transport(DeviceTransport::staged, {a, blocking}).transport,
            DeviceTransport::staged);
  EXPECT_EQ(choose_transport(DeviceTransport::automatic, {blocking, without}).transport,
            DeviceTransport::staged);
}

TEST(DeviceTransportChoice, OneRankAloneIsSoloUnlessNcclIsAskedFor) {
  for (const DeviceTransport asked : {DeviceTransport::automatic, DeviceTransport::staged}) {
    EXPECT_EQ(
        make_device_world(Communicator::solo(), c10::Device(c10::kCUDA, 0), "a", asked, {}, [] {})
            .communicator.transport_name(),
        "solo");
  }
  if (visible_devices() == 0) {  // else NcclTransport.OneRankHasACommunicatorOfItsOwn
    EXPECT_ANY_THROW(make_device_world(Communicator::solo(), c10::Device(c10::kCUDA, 0), "a",
                                       DeviceTransport::nccl, {}, [] {}));
  }
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(DeviceEnvironment, ChoosesDeviceAndTransportAndRefusesOtherWords) {
  {
    const Variable device("LOCKSTEP_DEVICE", "automatic");
    const Variable share("LOCKSTEP_SHARE_DEVICE", "1");
    const Variable transport("LOCKSTEP_TRANSPORT", "staged");
    const RuntimeOptions options = with_environment({});
    EXPECT_EQ(options.device(), DeviceKind::automatic);
    EXPECT_TRUE(options.share_device());
    EXPECT_EQ(options.transport(), DeviceTransport::staged);
  }
  const Variable device("LOCKSTEP_DEVICE", "gpu");
  try {
    with_environment({});
    ADD_FAILURE() << "took LOCKSTEP_DEVICE=gpu";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_DEVICE=gpu is none of cpu, cuda, automatic"));
  }
}

TEST(DeviceOptions, AModelOnAnotherDeviceThanTheCommunicatorsIsRefusedByName) {
  const Communicator on_meta(make_solo_transport(c10::Device(c10::kMeta)));
  const torch::nn::Linear model(2, 2);
  try {
    const DataParallel parallel(on_meta, model);
    ADD_FAILURE() << "took a parameter on another device";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter weight is on cpu, the communicator reduces "
                                        "tensors of meta"));
  }
}

TEST(DeviceOptions, ARuntimeOnTheCpuNeverAsksForADevice) {
  const Runtime runtime = Runtime::solo(RuntimeOptions().device(DeviceKind::cpu));
  EXPECT_TRUE(runtime.device().is_cpu());
  EXPECT_EQ(runtime.communicator().transport_name(), "solo");
}

}  // namespace
}  // namespace lockstep
