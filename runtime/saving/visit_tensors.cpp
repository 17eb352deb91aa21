#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/saving/own/visit_tensors.h>
#include <lockstep/runtime/storage/impl/flat.h>

namespace lockstep::detail {
namespace {

at::Tensor outline_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

/// `lasts`: the tensor's memory stays until the archive is done with it.
void visit(const std::vector<std::string>& names, const at::Tensor& tensor, bool lasts,
           StateArchive& archive) {
  at::Tensor values = storable_view(tensor);
  if (archive.saving() && at::isReducedFloatingType(values.scalar_type())) {
    values = (archive.only_names() ? outline_of(values) : values).to(at::kFloat);
    lasts = false;
  }
  for (const std::string& name : names) {
    lasts ? archive.tensor(name, values) : archive.passing(name, values);
  }
}

}  // namespace

std::vector<std::string> all_names(const ModelTensor& entry) {
  std::vector<std::string> names = {entry.name};
  names.insert(names.end(), entry.aliases.begin(), entry.aliases.end());
  return names;
}

void visit_trained(const TrainingStorage& storage, Arena::State state, const NamesOf& names,
                   StateArchive& archive, const std::vector<at::Tensor>* held) {
  const c10::AutoGradMode no_grad(false);
  Arena& arena = storage.arena();
  const std::vector<BucketPlan>& plans = storage.reducer().plans();
  const std::vector<ModelTensor>& parameters = storage.trainable().parameters;
  for (size_t b = 0; b < plans.size(); ++b) {
    const bool lasts = held != nullptr || arena.holds(state, b);
    const at::Tensor flat = archive.loading()                ? arena.room(state, b)
                            : held != nullptr                ? (*held)[b]
                            : lasts || !archive.only_names() ? arena.whole(state, b)
                                                             : arena.outline(state, b);
    for (const Slot& slot : plans[b].slots) {
      const ModelTensor& entry = parameters[static_cast<size_t>(slot.parameter)];
      visit(names(entry), shaped_view(flat, slot.offset, entry.tensor).detach(), lasts, archive);
    }
    if (archive.loading()) {
      arena.take(state, b, flat);
    }
  }
  if (archive.loading() && state == Arena::State::masters) {
    arena.end_taking();
  }
}

void visit_untrained(const std::vector<ModelTensor>& entries, ExactValues& exact,
                     StateArchive& archive) {
  const c10::AutoGradMode no_grad(false);
  for (const ModelTensor& entry : entries) {
    const at::Tensor values =
        archive.loading() ? exact.room(entry.tensor) : exact.stored(entry.tensor);
    visit(all_names(entry), values, /*lasts=*/true, archive);
    if (archive.loading()) {
      exact.take(entry.tensor, values);
    }
  }
}

}  // namespace lockstep::detail
