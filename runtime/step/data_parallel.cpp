#include <ATen/ops/empty_like.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/process/impl/rank_streams.h>
#include <lockstep/runtime/step/impl/option_fields.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <lockstep/runtime/storage/impl/buffer_sync.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/renormed_tables.h>
#include <lockstep/runtime/storage/impl/replicas.h>

namespace lockstep {
namespace {

std::vector<BucketPlan> plans_for(const std::vector<ModelTensor>& parameters,
                                  const DataParallelOptions& options) {
  std::vector<PlannedParameter> planned;
  for (const ModelTensor& entry : parameters) {
    const at::Tensor real = detail::real_view(entry.tensor.detach());
    const c10::ScalarType dtype = real.scalar_type();
    planned.push_back(
        {real.numel(), dtype, detail::wire_dtype(dtype, options.wire()), 0, real.device().type()});
  }
  return plan_buckets(planned, options.buckets());
}

}  // namespace

struct DataParallel::Impl {
  Impl(Communicator communicator, Model model, DataParallelOptions options)
      : communicator(std::move(communicator)),
        agreement(this->communicator.split(0, this->communicator.rank())),
        model(std::move(model)),
        options(std::move(options)),
        buffer_sync(this->options.buffers(), this->communicator),
        tables(this->model, this->communicator) {
    const c10::Device device = this->communicator.allocate(1, at::kFloat).device();
    agreement.attempt([&] {
      trainable = detail::trainable_parameters(this->model);
      detail::require_device(this->model, device);
    });
    detail::require_same_structure(this->model, agreement);
    detail::require_same_fields("DataParallel", detail::fields_of(this->options), agreement);
    detail::ReducerOptions reducer_options;
    reducer_options.op = this->options.reduce();
    reducer_options.densify_sparse = this->options.densify_sparse();
    const auto plans = plans_for(trainable.parameters, this->options);
    const auto wires = detail::allocate_wires(this->communicator, plans);
    agreement.attempt([&] {
      reducer = std::make_unique<detail::Reducer>(this->communicator, trainable.parameters, plans,
                                                  wires, reducer_options);
    });
    detail::broadcast_and_verify(this->model.parameters(), this->communicator, agreement);
    detail::broadcast_and_verify(this->model.buffers(), this->communicator, agreement);
    show_ties(this->model);
    detail::separate_random_streams(agreement.communicator());
  }

  void finish();
  void publish(const std::vector<char>& used);
  void publish_slot(size_t bucket, const Slot& slot);

  Communicator communicator;
  detail::Agreement agreement;
  Model model;
  DataParallelOptions options;
  detail::BufferSync buffer_sync;
  detail::RenormedTables tables;
  detail::Trainable trainable;
  std::unique_ptr<detail::Reducer> reducer;
};

void DataParallel::Impl::finish() {
  std::optional<Error> problem;
  if (!reducer->touched()) {
    problem = Error("finish() without a backward before it; call loss.backward() first");
  }
  reducer->launch_rest();
  if (!problem.has_value()) {
    problem = detail::window_problem(*reducer, trainable, options.unused());
  }
  reducer->wait_all();
  std::vector<char> used(trainable.parameters.size(), 1);
  try {
    agreement.raise_if_any(problem);
    if (options.unused() == UnusedParameters::detect) {
      used = detail::used_anywhere(*reducer, agreement.communicator());
    }
  } catch (...) {
    reducer->reset();
    throw;
  }
  publish(used);
  tables.merge();
  buffer_sync.run(model.buffers());
  reducer->reset();
}

void DataParallel::Impl::publish(const std::vector<char>& used) {
  for (size_t b = 0; b < reducer->size(); ++b) {
    for (const Slot& slot : reducer->plans()[b].slots) {
      if (used[static_cast<size_t>(slot.parameter)] != 0) {
        publish_slot(b, slot);
      }
    }
  }
}

void DataParallel::Impl::publish_slot(size_t bucket, const Slot& slot) {
  const at::Tensor& parameter = trainable.parameters[static_cast<size_t>(slot.parameter)].tensor;
  const at::Tensor& wire = reducer->wire(bucket);
  at::Tensor& gradient = parameter.mutable_grad();
  if (wire.scalar_type() == c10::toRealValueType(parameter.scalar_type())) {
    const at::Tensor view = detail::shaped_view(wire, slot.offset, parameter);
    if (!gradient.defined() || gradient.const_data_ptr() != view.const_data_ptr()) {
      gradient = view;
    }
    return;
  }
  if (!gradient.defined() || !detail::same_memory_order(gradient, parameter)) {
    gradient = at::empty_like(parameter.detach());
  }
  const at::Tensor source = wire.narrow(0, slot.offset, slot.numel);
  amp::cast_flat(detail::real_view(gradient), source, 1.0);
}

DataParallel::DataParallel(Communicator communicator, Model model, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(std::move(communicator), std::move(model), std::move(options))) {
}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;
DataParallel& DataParallel::operator=(DataParallel&&) noexcept = default;

void DataParallel::finish() {
  impl_->finish();
}

void DataParallel::abandon() {
  impl_->reducer->drain();
  impl_->reducer->reset();
}

int DataParallel::buckets() const {
  return static_cast<int>(impl_->reducer->size());
}

DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) {
  owner_.impl_->reducer->collect();
}

DataParallel::NoSync::~NoSync() {
  owner_.impl_->reducer->synchronise(1.0);
}

}  // namespace lockstep
