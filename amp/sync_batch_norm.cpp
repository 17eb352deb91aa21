#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/batch_norm_native.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/communicator_of_graph.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace lockstep {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using GroupPtr = detail::CommunicatorOfGraphPtr;

/// Which running means belong to converted layers. Entries of freed tensors are dropped when their
/// address is used again. Never destroyed: when a program ends, a communicator would use a device
/// whose driver has ended before.
class Registry {
 public:
  static Registry& instance() {
    static Registry& registry = *new Registry;
    return registry;
  }
  void add(const at::Tensor& running_mean, const GroupPtr& group) {
    const std::lock_guard<std::mutex> lock(mutex_);
    layers_.insert_or_assign(running_mean.unsafeGetTensorImpl(),
                             Layer{decltype(Layer::alive)(running_mean.getIntrusivePtr()), group});
  }
  GroupPtr find(const at::Tensor& running_mean) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = layers_.find(running_mean.unsafeGetTensorImpl());
    if (found == layers_.end()) {
      return {};
    }
    if (found->second.alive.expired()) {
      layers_.erase(found);
      return {};
    }
    return found->second.group;
  }

 private:
  struct Layer {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> alive;
    GroupPtr group;
  };
  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Layer> layers_;
};

std::vector<int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<int64_t> dimensions;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != 1) {
      dimensions.push_back(d);
    }
  }
  return dimensions;
}

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return values.view(sizes);
}

/// The sum over all ranks, in fp64, on the device of `values`.
at::Tensor summed(const at::Tensor& values, Communicator& communicator) {
  at::Tensor sum = values.to(at::kDouble).contiguous();
  communicator.all_reduce(sum).wait();
  return sum;
}

struct Statistics {
  at::Tensor mean;      // of all ranks, in computed_in()
  at::Tensor variance;  // biased
  at::Tensor count;     // elements a channel, of all ranks, fp64
};

/// fp64 for fp64 inputs, else fp32.
at::ScalarType computed_in(const at::Tensor& x) {
  return at::toOpMathType(x.scalar_type());
}

/// Turns each rank's mean and variance into sums of values and squares, and adds these over ranks.
/// The host checks the count only if it need not wait for a device.
Statistics statistics_of(const at::Tensor& x, Communicator& communicator) {
  const at::ScalarType dtype = computed_in(x);
  const int64_t channels = x.size(1);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(channels);
  at::Tensor own_mean = at::zeros({channels}, x.options().dtype(at::kDouble));
  at::Tensor own_variance = own_mean;
  if (x.numel() > 0) {
    const auto [variance, mean] = at::var_mean(x.to(dtype), all_but_channels(x),
                                               /*correction=*/c10::Scalar(0), /*keepdim=*/false);
    own_mean = mean.to(at::kDouble);
    own_variance = variance.to(at::kDouble);
  }
  const at::Tensor all =
      summed(at::cat({own_mean * count, (own_variance + own_mean.square()) * count,
                      at::full({1}, count, own_mean.options())}),
             communicator);
  const at::Tensor total = all.select(0, 2 * channels);
  LOCKSTEP_CHECK(!x.is_cpu() || total.item<double>() > 1, "SyncBatchNorm: ", total.item<double>(),
                 " elements a channel over all ranks; training needs at least 2");
  const at::Tensor mean = all.narrow(0, 0, channels) / total;
  at::Tensor variance = all.narrow(0, channels, channels) / total - mean.square();
  if (dtype == at::kDouble) {  // the difference above loses digits: sum again about the mean
    variance = summed((own_variance + (own_mean - mean).square()) * count, communicator) / total;
  }
  return {mean.to(dtype), variance.clamp_min(0).to(dtype), total};
}

struct SyncBatchNorm : torch::autograd::Function<SyncBatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& running_mean,
                            const at::Tensor& running_var, double momentum, double eps,
                            const GroupPtr& group) {
    const Statistics all = statistics_of(x, group->communicator);
    running_mean.lerp_(all.mean.to(running_mean.scalar_type()), momentum);
    running_var.lerp_((all.variance * (all.count / (all.count - 1))).to(running_var.scalar_type()),
                      momentum);
    context->save_for_backward(
        {x, weight.value_or(at::Tensor()), all.mean, (all.variance + eps).rsqrt(), all.count});
    detail::save_communicator(*context, group);
    context->saved_data["has_bias"] = bias.has_value();
    if (x.numel() == 0) {  // LibTorch's kernels for CUDA refuse it
      return at::empty_like(x);
    }
    return std::get<0>(at::native_batch_norm(x, weight, bias, all.mean, all.variance,
                                             /*training=*/false, momentum, eps));
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    LOCKSTEP_CHECK(!c10::GradMode::is_enabled(),
                   "SyncBatchNorm: a gradient with create_graph, which is differentiated again, "
                   "through a layer of convert_sync_batchnorm(); use plain BatchNorm or another "
                   "norm there");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const auto dimensions = all_but_channels(x);
    const at::ScalarType dtype = computed_in(x);
    const at::Tensor dy = outputs[0].to(dtype);
    const at::Tensor normed = (x.to(dtype) - per_channel(saved[2], x)) * per_channel(saved[3], x);
    const at::Tensor sum_dy = dy.sum(dimensions);
    const at::Tensor sum_dy_normed = (dy * normed).sum(dimensions);
    const auto group = detail::saved_communicator(*context);
    const at::Tensor all =
        (summed(at::cat({sum_dy, sum_dy_normed}), group->communicator) / saved[4]).to(dtype);
    const at::Tensor mean_dy = per_channel(all.narrow(0, 0, x.size(1)), x);
    const at::Tensor mean_dy_normed = per_channel(all.narrow(0, x.size(1), x.size(1)), x);
    at::Tensor factor = saved[3];
    if (weight.defined()) {
      factor = factor * weight;
    }
    const at::Tensor dx = (dy - mean_dy - normed * mean_dy_normed) * per_channel(factor, x);
    variable_list gradients(8);
    gradients[0] = dx.to(x.scalar_type());
    if (weight.defined()) {
      gradients[1] = sum_dy_normed.to(weight.scalar_type());
    }
    if (context->saved_data["has_bias"].toBool()) {
      gradients[2] = sum_dy.to(weight.defined() ? weight.scalar_type() : dtype);
    }
    return gradients;
  }
};

/// Autograd takes no undefined tensors as arguments.
std::optional<at::Tensor> if_defined(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor : std::nullopt;
}

/// Called for aten::batch_norm of every layer; layers that are not converted run as usual.
at::Tensor batch_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum,
                      double eps, bool cudnn_enabled) {
  if (training && running_mean.has_value() && running_mean->defined()) {
    if (const GroupPtr group = Registry::instance().find(*running_mean)) {
      return SyncBatchNorm::apply(x, if_defined(weight), if_defined(bias), *running_mean,
                                  *running_var, momentum, eps, group);
    }
  }
  return at::native::batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps,
                                cudnn_enabled);
}

bool is_running_mean(const std::string& name) {
  const std::string end = "running_mean";
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

c10::Device device_of(const Model& model) {
  return model.parameters().empty() ? c10::Device(c10::DeviceType::CPU)
                                    : model.parameters().front().tensor.device();
}

}  // namespace

int64_t convert_sync_batchnorm(const Model& model, Communicator communicator) {
  const auto group = c10::make_intrusive<detail::CommunicatorOfGraph>(communicator.split(0));
  std::vector<at::Tensor> layers;
  for (const ModelTensor& buffer : model.buffers()) {
    if (is_running_mean(buffer.name)) {
      layers.push_back(buffer.tensor);
    }
  }
  const auto count = static_cast<int64_t>(layers.size());
  const at::Tensor range = at::tensor({count, -count}, at::kLong).to(device_of(model));
  group->communicator.all_reduce(range, ReduceOp::max()).wait();
  const int64_t most = range[0].item<int64_t>();
  const int64_t fewest = -range[1].item<int64_t>();
  LOCKSTEP_CHECK(most == fewest, "convert_sync_batchnorm: ranks have from ", fewest, " to ", most,
                 " BatchNorm layers with running statistics, this one ", count,
                 "; give every rank the same model");
  for (const at::Tensor& running_mean : layers) {
    Registry::instance().add(running_mean, group);
  }
  return count;
}

std::string name_of_sync_batchnorm(const Model& model) {
  for (const ModelTensor& buffer : model.buffers()) {
    if (is_running_mean(buffer.name) && Registry::instance().find(buffer.tensor)) {
      return buffer.name;
    }
  }
  return {};
}

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("batch_norm", &batch_norm);
}
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) {
  library.impl("batch_norm", &batch_norm);
}

}  // namespace lockstep
