// What one step issues beyond forward and backward, counted on a pretend device: collectives,
// kernel launches, operators, waits. Prints JSON on rank 0, for scripts/counts.
#include <ATen/record_function.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "amp/emulated_cuda/launch_count.h"
#include "counted_models.h"
#include "pretend_device/streams.h"
#include "test_names.h"

namespace lockstep {
namespace {

using namespace detail;

constexpr int64_t kShrink = 16;
constexpr int64_t kSteps = 20;

std::map<std::string, int64_t> collectives;

/// Ranks that all hold the same tensors. Collectives are complete at once and make no host wait, as
/// NCCL's.
class EqualRanks final : public Transport {
 public:
  EqualRanks(int rank, int size) : rank_(rank), size_(size) {}
  const char* name() const override { return "equal"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return rank_; }
  int local_size() const override { return size_; }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    if (op.kind() == ReduceOp::Kind::sum) {
      at::Tensor(tensor).mul_(size_);
    }
    return issued("all_reduce");
  }
  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp /*op*/) override {
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    at::Tensor(output).copy_(input.narrow(0, rank_ * output.numel(), output.numel()));
    return issued("reduce_scatter");
  }
  std::shared_ptr<Operation> all_gather(const at::Tensor& output,
                                        const at::Tensor& input) override {
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    output.view({size_, -1}).copy_(input);
    return issued("all_gather");
  }
  std::shared_ptr<Operation> broadcast(const at::Tensor& /*tensor*/, int /*root*/) override {
    return issued("broadcast");
  }
  std::shared_ptr<Operation> barrier() override { return issued("barrier"); }
  std::shared_ptr<Transport> split(int, int) override {
    return std::make_shared<EqualRanks>(rank_, size_);
  }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(c10::kCUDA));
  }
  void progress() override {}
  const CollectiveLog& log() const override { return log_; }

 private:
  struct Complete final : Operation {
    bool test() override { return true; }
    void wait() override {}
  };
  static std::shared_ptr<Operation> issued(const char* verb) {
    ++collectives[verb];
    return std::make_shared<Complete>();
  }

  int rank_;
  int size_;
  CollectiveLog log_;
};

struct Operators {
  std::mutex mutex;
  std::map<std::string, int64_t> all;
  std::map<std::string, int64_t> on_device;  // with an argument there
  std::map<std::string, int64_t> kernels;    // of those that take lists: what LibTorch launches
};
Operators& operators() {
  static Operators counted;
  return counted;
}

bool is_on_device(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() && value.toTensor().is_cuda();
  }
  return value.isTensorList() && value.toTensorList().size() > 0 &&
         value.toTensorList().get(0).is_cuda();
}

/// LibTorch's kernels take lists of tensors: at::cat 128 a launch (CAT_ARRAY_BATCH_SIZE), an
/// operator on two lists 64 (depth_to_max_tensors of MultiTensorApply.cuh), where the tensors are
/// small.
int64_t launches_of_lists(const std::string& name, c10::ArrayRef<const c10::IValue> inputs) {
  const auto in_batches = [&](int64_t most) {
    const auto count = static_cast<int64_t>(inputs[0].toTensorList().size());
    return (count + most - 1) / most;
  };
  if (name == "aten::cat") {
    return in_batches(128);
  }
  return name == "aten::_foreach_copy_" ? in_batches(64) : 1;
}

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  const std::string name = function.name();
  const auto inputs = function.inputs();
  const bool device = std::any_of(inputs.begin(), inputs.end(), is_on_device);
  Operators& counted = operators();
  const std::lock_guard<std::mutex> lock(counted.mutex);
  ++counted.all[name];
  if (device && name == "aten::_foreach_copy_") {
    // The pretend device has no kernel for lists: LibTorch calls copy_ for each tensor there.
    const auto copies = static_cast<int64_t>(inputs[0].toTensorList().size());
    counted.all["aten::copy_"] -= copies;
    counted.kernels["aten::copy_"] -= copies;
  }
  if (device) {
    ++counted.on_device[name];
    counted.kernels[name] += launches_of_lists(name, inputs);
  }
  return nullptr;
}

struct Counts {
  std::map<std::string, int64_t> operators, kernels, collectives;
  int64_t launches = 0;  // of lockstep's kernels
  int64_t waits = 0;
};

Counts counted(const std::function<void()>& work) {
  operators().all.clear();
  operators().on_device.clear();
  operators().kernels.clear();
  collectives.clear();
  const int64_t launches = emulated_cuda::launch_count();
  const int64_t waits = pretend::host_waits();
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(note).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return {operators().all, operators().kernels, collectives,
          emulated_cuda::launch_count() - launches, pretend::host_waits() - waits};
}

/// Operators that launch nothing: they make or describe tensors.
bool launches_nothing(const std::string& name) {
  static const std::set<std::string> known = {"aten::alias",
                                              "aten::as_strided",
                                              "aten::chunk",
                                              "aten::contiguous",
                                              "aten::detach",
                                              "aten::detach_",
                                              "aten::empty",
                                              "aten::empty_like",
                                              "aten::empty_strided",
                                              "aten::expand",
                                              "aten::flatten",
                                              "aten::is_pinned",
                                              "aten::lift_fresh",
                                              "aten::narrow",
                                              "aten::ones_like",
                                              "aten::permute",
                                              "aten::record_stream",
                                              "aten::reshape",
                                              "aten::resize_",
                                              "aten::select",
                                              "aten::set_",
                                              "aten::slice",
                                              "aten::split",
                                              "aten::squeeze",
                                              "aten::t",
                                              "aten::to",
                                              "aten::_to_copy",
                                              "aten::transpose",
                                              "aten::unbind",
                                              "aten::unsqueeze",
                                              "aten::view",
                                              "aten::view_as",
                                              "aten::zeros_like",
                                              "aten::clone",
                                              "aten::_unsafe_view",
                                              "aten::new_empty",
                                              "aten::item",
                                              "aten::set_data",
                                              "aten::zeros",
                                              "aten::result_type",
                                              "detach",
                                              "detach_",
                                              "aten::expand_as",
                                              "aten::new_zeros",
                                              "aten::data",
                                              "aten::variable_data",
                                              "aten::is_nonzero"};
  return known.count(name) != 0;
}

std::vector<PlannedParameter> planned(const Model& model, const Precision& precision) {
  std::vector<PlannedParameter> result;
  for (const ModelTensor& entry : model.parameters()) {
    result.push_back(
        {entry.tensor.numel(), precision.storage_dtype(entry), precision.wire_dtype(), 0});
  }
  return result;
}

/// Limits by which the small model has as many buckets as the real one.
BucketOptions limits_for(const Model& model, const Precision& precision, size_t buckets) {
  const auto parameters = planned(model, precision);
  for (int64_t bytes = 64; bytes < (1 << 24); bytes += bytes / 32 + 32) {
    const auto limits = BucketOptions().first_bucket_bytes(bytes / 25 + 1).bucket_bytes(bytes);
    if (plan_buckets(parameters, limits).size() == buckets) {
      return limits;
    }
  }
  throw Error("no limit gives the small model the buckets of the real one");
}

template <typename Map>
void print(const char* name, const Map& map) {
  std::cout << ",\n \"" << name << "\": {";
  const char* comma = "";
  for (const auto& [key, value] : map) {
    std::cout << comma << "\"" << key << "\": " << static_cast<double>(value) / kSteps;
    comma = ", ";
  }
  std::cout << "}";
}

void report(const char* name, const Model& real, size_t buckets, const Counts& step,
            const Counts& plain) {
  std::map<std::string, int64_t> kernels;
  int64_t operators = 0;
  for (const auto& [key, count] : step.operators) {
    const auto without = plain.operators.find(key);
    operators += count - (without == plain.operators.end() ? 0 : without->second);
  }
  for (const auto& [key, count] : step.kernels) {
    const auto without = plain.kernels.find(key);
    const int64_t more = count - (without == plain.kernels.end() ? 0 : without->second);
    if (more != 0 && !launches_nothing(key)) {
      kernels[key] = more;
    }
  }
  kernels["lockstep"] = step.launches - plain.launches;
  std::cout << "{\"model\": \"" << name << "\", \"buckets\": " << buckets
            << ",\n \"parameters\": [";
  const char* comma = "";
  for (const ModelTensor& entry : real.parameters()) {
    std::cout << comma << entry.tensor.numel();
    comma = ", ";
  }
  std::cout << "],\n \"float_buffers\": [";
  comma = "";
  int64_t integers = 0;
  for (const ModelTensor& entry : real.buffers()) {
    if (entry.tensor.is_floating_point()) {
      std::cout << comma << entry.tensor.numel();
      comma = ", ";
    } else {
      ++integers;
    }
  }
  std::cout << "],\n \"integer_buffers\": " << integers;
  print("collectives", step.collectives);
  print("kernels", kernels);
  std::cout << ",\n \"operators\": " << static_cast<double>(operators) / kSteps
            << ",\n \"waits\": " << static_cast<double>(step.waits - plain.waits) / kSteps << "}";
}

template <typename Shape>
void count(Runtime& runtime, const char* name, const char* comma) {
  const Precision precision = Precision::O2(at::kBFloat16);
  const auto real = std::make_shared<Shape>(1, c10::Device(c10::kMeta));
  const size_t buckets =
      plan_buckets(planned(real, precision), BucketOptions().bucket_bytes(kDeviceBucketBytes))
          .size();
  at::manual_seed(3);
  const auto model = std::make_shared<Shape>(kShrink, c10::Device(c10::kCPU));
  const auto options = TrainerOptions()
                           .precision(precision)
                           .clip_grad_norm(1.0)
                           .schedule(WarmupCosine(5, 1000))
                           .buckets(limits_for(model, precision, buckets));
  Trainer trainer(std::make_unique<TrainerImpl>(
      runtime, model, AdamW(1e-4), options, HostActs::one_window_late, nullptr,
      Communicator(std::make_shared<EqualRanks>(runtime.rank(), runtime.size()))));
  model->device = runtime.device();
  const auto loss_of_equal_ranks = [&] {
    at::manual_seed(7);  // every rank has the same batch
    return model->loss();
  };
  const auto step = [&] { trainer.step([&]() -> Loss { return loss_of_equal_ranks(); }); };
  const auto forward_and_backward = [&] {
    at::Tensor loss;
    {
      const amp::Autocast autocast = trainer.impl().step->autocast();
      loss = loss_of_equal_ranks();
    }
    loss.backward();
    for (const at::Tensor& parameter : model->parameters()) {
      parameter.mutable_grad().reset();
    }
  };
  const auto times = [](const std::function<void()>& work) {
    for (int64_t k = 0; k < kSteps; ++k) {
      work();
    }
  };
  for (int64_t warm = 0; warm < 5; ++warm) {
    step();
  }
  const Counts all = counted([&] { times(step); });
  forward_and_backward();
  const Counts plain = counted([&] { times(forward_and_backward); });
  if (runtime.is_main()) {
    std::cout << comma;
    report(name, real, buckets, all, plain);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  return run(argc, argv, [](Runtime& runtime) {
    if (runtime.is_main()) {
      std::cout << "[";
    }
    count<lockstep::testing::ResNet50Shape>(runtime, "ResNet-50", "");
    count<lockstep::testing::Gpt2Shape>(runtime, "GPT-2 124M", ",\n");
    count<lockstep::testing::BertShape>(runtime, "BERT-base", ",\n");
    if (runtime.is_main()) {
      std::cout << "]" << std::endl;
    }
  });
}
