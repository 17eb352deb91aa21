// Where a Training's parameters lie: laid out when it is made, and again when other parameters are
// trainable.
#include <c10/core/GradMode.h>
#include <lockstep/amp/kept_fp32.h>
#include <lockstep/runtime/memory_archive.h>
#include <lockstep/runtime/replicas.h>
#include <lockstep/runtime/training.h>

#include <map>

namespace lockstep {
namespace {

using Values = std::map<std::string, at::Tensor>;

Values copies(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  Values values;
  for (const auto& [name, tensor] : named) {
    values[name] = tensor.clone();
  }
  return values;
}

/// Writes to views of flat arrays: what was there before for the same name, else `fresh`.
void write(const std::vector<std::pair<std::string, at::Tensor>>& views, const Values& before,
           const Values& fresh) {
  for (const auto& [name, view] : views) {
    const auto found = before.find(name);
    view.copy_(found != before.end() ? found->second : fresh.at(name));
  }
}

std::string names_of(const std::vector<ModelTensor>& parameters) {
  std::string names;
  for (const ModelTensor& entry : parameters) {
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  return names;
}

}  // namespace

void Training::adopt_trainable() {
  LOCKSTEP_CHECK(steps->micro_batches_in_window() == 0,
                 "adopt_trainable() in the middle of a window: call it when "
                 "StepReport::closes_update(), or abandon() first");
  steps->settle();
  Trainable now;
  agreement.attempt([&] {
    now = trainable_now(model, trainable);
    require_no_double(now.parameters);
  });
  require_same_text("which parameters are trainable", names_of(now.parameters), agreement);
  if (names_of(now.parameters) == names_of(trainable.parameters)) {
    return;
  }
  explained([&] { move_into_new_layout(now); });
}

/// The arena and the reducer stay the objects that others refer to.
void Training::move_into_new_layout(const Trainable& now) {
  const c10::AutoGradMode no_grad(false);
  MemoryArchive moments(arena->sharded() ? std::make_optional(agreement.communicator())
                                         : std::nullopt);
  const Values masters = copies(named(arena->whole_masters()));
  const Values averages = arena->has_averages() ? copies(named(arena->whole_averages())) : Values();
  updater->visit_state(*reducer, moments);
  const std::vector<double> rates = updater->learning_rates().all();
  moments.give_back();

  const auto plans = plans_for(now.parameters);
  std::vector<at::Tensor> wires = allocate_wires(communicator, plans);
  Values fresh;
  agreement.attempt([&] {
    for (const ModelTensor& entry : now.frozen) {
      if (const auto master = masters.find(entry.name); master != masters.end()) {
        entry.tensor.set_data(entry.tensor.detach().clone());
        exact.convert({entry}, options.precision());
        exact.take(entry.tensor, master->second.to(at::kCPU, at::kFloat));
      }
    }
    for (const ModelTensor& entry : now.parameters) {
      if (masters.count(entry.name) == 0) {
        fresh[entry.name] = exact.stored(entry.tensor).to(at::kFloat).clone();
      }
    }
    trainable = now;
    updater.reset();
    *arena = new_arena(plans);
    refresh_model();
    reducer->lay_out(trainable.parameters, plans, std::move(wires));
    const std::vector<at::Tensor> flats = arena->room_for_masters();
    write(named(flats), masters, fresh);
    arena->take_masters(flats);
    if (arena->has_averages()) {
      const std::vector<at::Tensor> means = arena->room_for_averages();
      write(named(means), averages, fresh);
      arena->take_averages(means);
    }
    updater = new_updater();
    updater->visit_state(*reducer, moments);
    for (size_t g = 0; g < rates.size(); ++g) {
      updater->learning_rates().set(rates[g], static_cast<int>(g));
    }
    make_checks();
    steps->adopt(trainable);
  });
  if (graphed != nullptr) {
    graphed->forget();
  }
}

}  // namespace lockstep
