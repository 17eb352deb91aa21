#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/process/impl/environment.h>
#include <lockstep/runtime/process/impl/host_threads.h>
#include <lockstep/runtime/step/impl/gradient_sums.h>
#include <lockstep/runtime/step/impl/training_storage.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/model_memory.h>
#include <lockstep/runtime/storage/impl/named_views.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <lockstep/runtime/storage/impl/slow_dtype_notice.h>
#include <lockstep/runtime/storage/impl/state_copy.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

int shards(const TrainerOptions& options, const Communicator& communicator) {
  return options.shard_optimizer() ? communicator.size() : 1;
}

/// Exact sums are all-reduced, so that every rank measures the same numbers in one order.
bool scatters(const TrainerOptions& options, const Communicator& communicator) {
  return shards(options, communicator) > 1 && !options.reproducible();
}

WireLayout wire_layout(const TrainerOptions& options, const Communicator& communicator) {
  return scatters(options, communicator) ? WireLayout::scattered : WireLayout::whole;
}

ReducerOptions reducer_options(const TrainerOptions& options, const Communicator& devices) {
  ReducerOptions result;
  result.op = gradient_operation(options.precision(), devices);
  result.densify_sparse = options.densify_sparse();
  result.take_gradients = true;
  result.leaves =
      options.reproducible() ? options.accumulate() * devices.size() * options.losses() : 0;
  result.accumulators = result.leaves == 0 && (options.accumulate() > 1 || options.losses() > 1);
  result.scatter = scatters(options, devices);
  return result;
}

Communicator ranks_of_gradients(const TrainerOptions& options, const Communicator& devices,
                                c10::Device device) {
  return options.local_updates() ? Communicator(make_solo_transport(device)) : devices;
}

/// Collective.
bool some_node_has_several_ranks(const Communicator& communicator) {
  const std::vector<int64_t> sizes = communicator.all_gather_numbers(communicator.local_size());
  return *std::max_element(sizes.begin(), sizes.end()) > 1;
}

Arena::Options arena_options(const TrainerOptions& options, const Communicator& communicator,
                             std::shared_ptr<NodeMemory> node) {
  Arena::Options result{options.ema() > 0.0, std::nullopt, std::move(node),
                        options.offload_states()};
  if (shards(options, communicator) > 1) {
    result.sharers = communicator;
  }
  return result;
}

UpdaterOptions updater_options(const TrainerOptions& options, uint64_t seed) {
  UpdaterOptions result;
  result.rounds_randomly = options.precision().rounds_randomly();
  result.seed = seed;
  result.average_rest = 1.0 - options.ema();
  if (options.clip_grad_value() < std::numeric_limits<float>::max()) {  // the default: no limit
    result.clip_value = options.clip_grad_value();
  }
  result.counts_by_parameter = options.unused() == UnusedParameters::detect;
  result.offloads = options.offload_states();
  return result;
}

/// Aliases of the parameters: a reducer of these adds no hooks to the parameters themselves.
std::vector<ModelTensor> without_hooks(std::vector<ModelTensor> parameters) {
  for (ModelTensor& entry : parameters) {
    entry.tensor = entry.tensor.detach();
  }
  return parameters;
}

std::map<std::string, at::Tensor> values_of(const NamedTensors& named) {
  return {named.begin(), named.end()};
}

std::string names_of(const std::vector<ModelTensor>& parameters) {
  std::string names;
  for (const ModelTensor& entry : parameters) {
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  return names;
}

/// Copies `weight` to `master`, unless `master` already rounds to it: then its low bits stay.
void take_over(const at::Tensor& master, const at::Tensor& weight, c10::ScalarType rounded) {
  const at::Tensor given = weight.detach().to(master.device(), master.scalar_type());
  if (!at::equal(master.to(rounded).to(master.scalar_type()), given)) {
    master.copy_(given);
  }
}

}  // namespace

TrainingStorage::TrainingStorage(const Runtime& runtime, const Model& model,
                                 std::shared_ptr<const OptimizerSpec> spec,
                                 const TrainerOptions& options, Trainable trainable,
                                 const Communicator& devices, const Agreement& agreement,
                                 const ActivationPlanning& activations)
    : runtime_(runtime),
      model_(model),
      spec_(std::move(spec)),
      options_(options),
      trainable_(std::move(trainable)),
      devices_(devices),
      gradient_ranks_(ranks_of_gradients(options, devices, runtime.device())),
      agreement_(agreement),
      activations_(activations) {
  explained([&] {
    broadcast_and_verify(model.parameters(), devices_, agreement_);
    broadcast_and_verify(model.buffers(), devices_, agreement_);
  });
  note_writes(model.parameters());
  note_writes(model.buffers());
  const ModelMemory users(model);
  for (const ModelTensor& entry : trainable_.parameters) {
    if (!users.other_user(entry).empty()) {
      viewed_ += (viewed_.empty() ? "" : ", ") + entry.name;
    }
  }
  const auto plans = plans_for(trainable_.parameters);
  agreement_.attempt([&] {
    if (options.share_weights().value_or(false)) {
      LOCKSTEP_CHECK(runtime.device().is_cpu(), "share_weights: the model is on ", runtime.device(),
                     ", and only host memory can be shared; use share_weights(false)");
      require_no_renormed_tables("share_weights: ", model);
    }
    if (options.offload_states()) {
      LOCKSTEP_CHECK(!runtime.device().is_cpu(),
                     "offload_states: the model is on the CPU, whose memory has the states in any "
                     "case; use offload_states(false)");
      LOCKSTEP_CHECK(spec_->fused() != nullptr,
                     "offload_states: a TorchOptimizer updates where its state is; use a fused "
                     "optimizer, such as AdamW, or offload_states(false)");
    }
  });
  std::shared_ptr<NodeMemory> node = node_memory(plans);
  agreement_.attempt([&] {
    if (dtype_is_probed() && runtime.is_main()) {
      SlowDtypeNotice::of_process().look_at(options.precision(), runtime.device());
    }
    explained([&] {
      arena_ = std::make_unique<Arena>(new_arena(plans, std::move(node)));
      exact_.convert_frozen(trainable_.frozen, options.precision());
      exact_.convert_buffers(model.buffers(), options.precision());
      averaged_buffers_ = std::make_unique<AveragedBuffers>(model.buffers(), options.ema());
      refresh_model();
      release_freed_memory(runtime.device());
    });
  });
  Wires wires;
  std::vector<at::Tensor> leaf_sums;
  explained([&] {
    wires = allocate_wires(devices_, plans, wire_layout(options_, devices_));
    leaf_sums = allocate_leaf_sums(plans);
  });
  agreement_.attempt([&] {
    explained([&] {
      reducer_ = std::make_unique<Reducer>(
          gradient_ranks_, trainable_.parameters, plans, std::move(wires),
          reducer_options(options, gradient_ranks_), std::move(leaf_sums));
      updater_ = new_updater();
      if (options.local_updates()) {
        rounds_ = std::make_unique<LocalRounds>(*options.local_updates(), devices_, *arena_,
                                                *reducer_, *updater_);
      }
      make_checks();
    });
  });
}

/// Runs `body`; an Error of missing memory says what uses the memory.
void TrainingStorage::explained(const std::function<void()>& body) const {
  try {
    body();
  } catch (...) {
    const Error error = as_error(std::current_exception());
    if (error.code() != ExitCode::out_of_memory) {
      throw;
    }
    throw Error(c10::str("out of memory while the Trainer is made: ", error.what(), "\n",
                         out_of_memory_advice()),
                error.code());
  }
}

std::string TrainingStorage::out_of_memory_advice() const {
  return lockstep::out_of_memory_advice(memory(), device_memory(runtime_.device()),
                                        activations_.report());
}

Error TrainingStorage::explained(const Error& error, int64_t micro_batch) const {
  std::string text = error.what();
  if (error.code() == ExitCode::out_of_memory) {
    text = c10::str("out of memory in micro-batch ", micro_batch, ": ", text, "\n",
                    out_of_memory_advice());
  } else if (error.code() == ExitCode::peer_lost) {
    text = c10::str("the device failed: ", text, "; restart from the last snapshot");
  } else if (!viewed_.empty() && text.find("another view of its base") != std::string::npos) {
    text += "\nTensors that the program keeps are views of " + viewed_ +
            ". A view that split(), chunk() or unbind() made, or that was made under NoGradGuard, "
            "cannot be used once its weight is updated in place, by a Trainer or by torch::optim: "
            "make it in forward()";
  }
  return Error(text, error.code());
}

std::vector<BucketPlan> TrainingStorage::plans_for(
    const std::vector<ModelTensor>& parameters) const {
  std::vector<PlannedParameter> planned;
  planned.reserve(parameters.size());
  for (const ModelTensor& entry : parameters) {
    planned.push_back({real_view(entry.tensor.detach()).numel(),
                       c10::toRealValueType(options_.precision().storage_dtype(entry)),
                       wire_dtype(entry, options_.precision()), spec_->group_of(entry),
                       entry.tensor.device().type(), spec_->needs_whole(entry)});
  }
  return plan_buckets(planned, options_.buckets(), shards(options_, devices_));
}

std::vector<at::Tensor> TrainingStorage::allocate_leaf_sums(
    const std::vector<BucketPlan>& plans) const {
  return options_.reproducible() ? LeafSums::allocate(devices_, plans) : std::vector<at::Tensor>();
}

/// Null if weights are not shared, or if this machine has no memory for it. Collective.
std::shared_ptr<NodeMemory> TrainingStorage::node_memory(
    const std::vector<BucketPlan>& plans) const {
  if (shards(options_, devices_) == 1) {
    return nullptr;
  }
  const bool shares = options_.share_weights().has_value()
                          ? *options_.share_weights()
                          : runtime_.device().is_cpu() && !has_renormed_tables(model_) &&
                                some_node_has_several_ranks(devices_);
  return shares ? NodeMemory::make(devices_, Arena::node_bytes(plans, devices_.size()),
                                   "share_weights")
                : nullptr;
}

Arena TrainingStorage::new_arena(const std::vector<BucketPlan>& plans,
                                 std::shared_ptr<NodeMemory> node) const {
  return {trainable_.parameters, plans, options_.precision(),
          arena_options(options_, devices_, std::move(node))};
}

std::unique_ptr<Updater> TrainingStorage::new_updater() {
  return Updater::make(*spec_, *reducer_, *arena_, updater_options(options_, runtime_.seed()));
}

/// After parameters got new memory: marks those that compute in fp32, and makes all names of a tied
/// weight show the same tensor.
void TrainingStorage::refresh_model() const {
  for (const ModelTensor& entry : model_.parameters()) {
    if (options_.precision().keeps_fp32(entry)) {
      amp::compute_in_fp32(entry.tensor);
    }
  }
  show_ties(model_);
}

/// Call it once everything is in its final place.
void TrainingStorage::make_checks() {
  const int64_t every = options_.compare_replicas_every();
  watch_ = std::make_unique<ModelWatch>(
      model_, trainable_, every > 0 ? every : 100,
      watch_ != nullptr ? watch_->followers() : std::vector<ModelWatch::Follower>());
  written_ = std::make_unique<WrittenWeights>(trainable_, *arena_, reducer_->plans(),
                                              RenormedTables(model_, gradient_ranks_),
                                              !options_.share_weights().has_value());
  frozen_watch_ = std::make_unique<FrozenWatch>(trainable_.frozen, exact_, options_.precision(),
                                                every > 0 ? every : 100);
  replicas_ = std::make_unique<ReplicaCheck>(
      trainable_, *arena_, *reducer_, *updater_, *written_, agreement_, every,
      rounds_ ? rounds_->shared() : std::vector<ReplicatedArray>(),
      options_.buffers() == BufferPolicy::none ? NamedTensors() : averaged_buffers_->named());
}

void TrainingStorage::adopt_weights() {
  agreement_.attempt([&] {
    watch_->require_adoptable();
    ModelMemory(model_).require_movable(options_.precision(), runtime_.device());
  });
  std::vector<ReplicatedArray> given;
  for (const auto* list : {&trainable_.parameters, &trainable_.frozen}) {
    for (const ModelTensor& entry : *list) {
      given.push_back({entry.name, entry.tensor.detach()});
    }
  }
  if (const auto difference = difference_between_ranks(given, agreement_)) {
    throw Error("adopt_weights(): " + difference->text +
                    ". Nothing was adopted. Give the model the same weights on every rank",
                ExitCode::diverged, difference->ranks);
  }
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> flats = arena_->whole_masters();
  const std::vector<at::Tensor> masters =
      parameter_views(flats, trainable_.parameters, reducer_->plans());
  const bool ranks_differ = rounds_ && rounds_->updates_of_round() > 0;  // in the low bits too
  for (size_t b = 0; b < reducer_->size(); ++b) {
    for (const Slot& slot : reducer_->plans()[b].slots) {
      const auto i = static_cast<size_t>(slot.parameter);
      const at::Tensor& weight = trainable_.parameters[i].tensor;
      if (ranks_differ) {
        masters[i].copy_(weight.detach());
      } else {
        take_over(real_view(masters[i]), real_view(weight.detach().resolve_conj()),
                  reducer_->plans()[b].weight_dtype);
      }
    }
  }
  arena_->take_masters(flats);
  arena_->wait_for_node();
  if (rounds_) {
    rounds_->restart();
  }
  exact_.convert_again();
  watch_->bring_back();
  show_ties(model_);
}

bool TrainingStorage::adopt_trainable() {
  Trainable now;
  agreement_.attempt([&] {
    now = trainable_now(model_, trainable_);
    require_trainable_doubles(now.parameters, options_.precision(), *spec_, runtime_.device());
  });
  require_same_text("which parameters are trainable", names_of(now.parameters), agreement_);
  if (names_of(now.parameters) == names_of(trainable_.parameters)) {
    return false;
  }
  LOCKSTEP_CHECK(!rounds_,
                 "adopt_trainable(): the trainable parameters of a run with local_updates cannot "
                 "change; save, and start a run with the other parameters from load_weights()");
  explained([&] { move_into_new_layout(now); });
  return true;
}

void TrainingStorage::take_states_to_device() {
  options_.offload_states(false);
  try {
    explained([&] { move_into_new_layout(trainable_); });
  } catch (...) {
    options_.offload_states(true);
    throw;
  }
}

/// The arena and the reducer stay the same objects, because others refer to them. The user's
/// factory of an optimizer is called before the reducer changes: if it fails on a rank, all ranks
/// return to their earlier memory.
void TrainingStorage::move_into_new_layout(const Trainable& now) {
  const c10::AutoGradMode no_grad(false);
  StateCopy moments(
      arena_->sharded() ? std::make_optional(agreement_.communicator()) : std::nullopt,
      /*on_host=*/true);
  moments.take([this](StateArchive& archive) { updater_->visit_state(*reducer_, archive); });
  agreement_.attempt([&] { moments.require_taken(); });
  const Values masters = values_of(named(arena_->whole_masters()));
  const Values averages =
      arena_->has_averages() ? values_of(named(arena_->whole_averages())) : Values();
  agreement_.attempt([&] { updater_->take_edited_rates(); });
  const std::vector<double> rates = updater_->learning_rates().all();

  const auto plans = plans_for(now.parameters);
  Wires wires = allocate_wires(devices_, plans, wire_layout(options_, devices_));
  std::vector<at::Tensor> leaf_sums = allocate_leaf_sums(plans);
  std::shared_ptr<NodeMemory> node = node_memory(plans);
  const Trainable before = trainable_;
  const ExactValues exact_before = exact_;
  std::optional<Arena> arena_before;
  std::unique_ptr<Updater> updater;
  try {
    agreement_.attempt([&] {
      const Values fresh = freeze_and_thaw(now, masters);
      trainable_ = now;
      arena_before = std::exchange(*arena_, new_arena(plans, std::move(node)));
      refresh_model();
      const Reducer layout(gradient_ranks_, without_hooks(now.parameters), plans, wires, {});
      const std::vector<at::Tensor> flats = arena_->room_for_masters();
      write(named_views(flats, now.parameters, plans), masters, fresh);
      arena_->take_masters(flats);
      if (arena_->has_averages()) {
        const std::vector<at::Tensor> means = arena_->room_for_averages();
        write(named_views(means, now.parameters, plans), averages, fresh);
        arena_->take_averages(means);
      }
      updater = Updater::make(*spec_, layout, *arena_, updater_options(options_, runtime_.seed()));
      moments.give_back([&](StateArchive& archive) { updater->visit_state(layout, archive); });
      for (size_t g = 0; g < rates.size(); ++g) {
        updater->learning_rates().set(rates[g], static_cast<int>(g));
      }
      updater->set_shown_factor(updater_->shown_factor());
      updater->show_rates();
    });
  } catch (...) {
    trainable_ = before;
    exact_ = exact_before;
    if (arena_before) {
      *arena_ = std::move(*arena_before);
    }
    for (const ModelTensor& entry : before.frozen) {
      if (entry.tensor.requires_grad()) {  // it may be in the new layout
        give_own_memory(entry.tensor);
      }
    }
    arena_->take_back(reducer_->plans());
    refresh_model();
    make_checks();
    throw;
  }
  agreement_.attempt([&] {
    reducer_->lay_out(trainable_.parameters, plans, std::move(wires), std::move(leaf_sums));
    updater_ = std::move(updater);
    make_checks();
  });
}

/// Moves newly frozen parameters to memory of their own, with their masters' values. Returns the
/// fp32 or fp64 values of newly trainable parameters, which have no master yet.
TrainingStorage::Values TrainingStorage::freeze_and_thaw(const Trainable& now,
                                                         const Values& masters) {
  for (const ModelTensor& entry : now.frozen) {
    if (const auto master = masters.find(entry.name); master != masters.end()) {
      give_own_memory(entry.tensor);
      const at::Tensor& value = master->second;
      exact_.add_frozen(entry.tensor, value.is_complex() ? value : value.to(at::kCPU, at::kFloat));
    }
  }
  Values fresh;
  for (const ModelTensor& entry : now.parameters) {
    if (masters.count(entry.name) == 0) {
      const at::Tensor stored = exact_.stored(entry.tensor);
      const bool stays = stored.scalar_type() == at::kDouble || stored.is_complex();
      fresh[entry.name] = stored.to(stays ? stored.scalar_type() : at::kFloat).clone();
    }
  }
  return fresh;
}

std::optional<Error> TrainingStorage::problem_of_window(UnusedParameters policy) const {
  auto problem = window_problem(*reducer_, trainable_, policy);
  problem = problem ? problem : watch_->departure();
  return problem ? problem : frozen_watch_->end_window();
}

void TrainingStorage::require_unchanged(bool window_begins) const {
  watch_->require_unchanged(window_begins);
  if (const auto problem = frozen_watch_->change()) {
    throw *problem;
  }
}

std::optional<Error> TrainingStorage::change_of_model() const {
  auto problem = watch_->departure();
  return problem ? problem : frozen_watch_->change();
}

TrainingStorage::Named TrainingStorage::named(const std::vector<at::Tensor>& flats) const {
  return named_views(flats, reducer_->parameters(), reducer_->plans());
}

int64_t TrainingStorage::staging_bytes() const {
  int64_t all = 0;
  int64_t largest = 0;
  for (const BucketPlan& plan : reducer_->plans()) {
    all += plan.numel;
    largest = std::max(largest, plan.numel);
  }
  const double share =
      static_cast<double>(largest) / static_cast<double>(std::max<int64_t>(1, all));
  return static_cast<int64_t>(2.0 * share * static_cast<double>(memory().on_host));
}

ArenaMemory TrainingStorage::memory() const {
  ArenaMemory result;
  if (arena_ != nullptr) {
    result.weights = arena_->weight_bytes();
    result.masters = arena_->master_bytes();
    result.averages = arena_->average_bytes() + averaged_buffers_->bytes();
  }
  if (reducer_ != nullptr) {
    result.gradients = reducer_->wire_bytes();
    result.accumulators = reducer_->accumulator_bytes();
  }
  if (updater_ != nullptr) {
    result.moments = updater_->moment_bytes();
  }
  if (rounds_ != nullptr) {
    result.rounds = rounds_->bytes();
  }
  if (options_.offload_states() && arena_ != nullptr) {
    result.on_host = result.masters + arena_->average_bytes() + result.moments;
  }
  return result;
}

}  // namespace lockstep::detail
