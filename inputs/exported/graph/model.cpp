#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/exported/archive/archive.h>
#include <lockstep/inputs/exported/archive/archive_writer.h>
#include <lockstep/inputs/exported/archive/parsed.h>
#include <lockstep/inputs/exported/graph/compiler.h>
#include <lockstep/inputs/exported/graph/model.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace lockstep::exported {

namespace {

bool is_floating_parameter(const StoredTensor& stored) {
  return stored.parameter && at::isFloatingType(stored.tensor.scalar_type());
}

/// The dtype of most elements of the parameters.
std::optional<at::ScalarType> common_dtype(const std::vector<StoredTensor>& tensors) {
  std::map<at::ScalarType, int64_t> elements;
  for (const StoredTensor& stored : tensors) {
    if (is_floating_parameter(stored)) {
      elements[stored.tensor.scalar_type()] += stored.tensor.numel();
    }
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? std::nullopt : std::optional(most->first);
}

/// In the order of the program, which is Python's; unused ones follow.
std::vector<StoredTensor> in_order(std::vector<StoredTensor> stored, const Program& program) {
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < program.state.size(); ++i) {
    places.emplace(program.state[i].name, i);
  }
  const auto place = [&](const StoredTensor& entry) {
    const auto found = places.find(entry.name);
    return found == places.end() ? places.size() : found->second;
  };
  std::stable_sort(stored.begin(), stored.end(), [&](const StoredTensor& a, const StoredTensor& b) {
    return place(a) < place(b);
  });
  return stored;
}

/// Copies tensors. Those that share a storage still do.
class StorageCopies {
 public:
  explicit StorageCopies(std::optional<c10::Device> device) : device_(device) {}

  at::Tensor copy(const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    const c10::Storage& storage = tensor.storage();
    at::Tensor& bytes = copies_[storage.unsafeGetStorageImpl()];
    if (!bytes.defined()) {
      const auto size = static_cast<int64_t>(storage.nbytes());
      bytes = at::empty({0}, tensor.options().dtype(at::kByte))
                  .set_(storage, 0, {size}, {1})
                  .to(device_.value_or(tensor.device()), at::kByte, false, /*copy=*/true);
    }
    return at::empty({0}, tensor.options().device(bytes.device()))
        .set_(bytes.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides())
        .requires_grad_(tensor.requires_grad());
  }

 private:
  std::optional<c10::Device> device_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> copies_;
};

void check_same(const std::vector<StoredTensor>& train, const std::vector<StoredTensor>& eval) {
  bool same = train.size() == eval.size();
  for (size_t i = 0; same && i < train.size(); ++i) {
    same = train[i].name == eval[i].name && train[i].tensor.sizes() == eval[i].tensor.sizes() &&
           train[i].tensor.scalar_type() == eval[i].tensor.scalar_type();
  }
  if (!same) {
    malformed(
        "the programs 'train' and 'eval' have different parameters or buffers. Export both "
        "from one model");
  }
}

}  // namespace

Program Model::read(Archive& archive, const std::string& name) {
  const std::string record = "models/" + name + ".json";
  std::vector<StoredTensor> weights = read_weights(archive, name);
  const std::vector<StoredTensor> constants = read_constants(archive, name);
  const nlohmann::json json = archive.json(record);
  return parsed(path_, record, [&] {
    Place home;
    home.device = weights.empty() ? c10::Device(c10::kCPU) : weights.front().device;
    home.dtype = common_dtype(weights).value_or(at::kFloat);
    Program program = compile(json, home, namespaces_);
    if (registered_.empty()) {
      registered_ = in_order(std::move(weights), program);
    } else {
      check_same(registered_, in_order(std::move(weights), program));
    }
    std::unordered_map<std::string, at::Tensor> tensors;
    for (const std::vector<StoredTensor>& list : {registered_, constants}) {
      for (const StoredTensor& stored : list) {
        tensors.emplace(stored.name, stored.tensor);
      }
    }
    program.bind(tensors);
    return program;
  });
}

Model::Model(const std::string& path, std::vector<std::string> namespaces, bool without_no_grad)
    : path_(path), namespaces_(std::move(namespaces)), without_no_grad_(without_no_grad) {
  Archive archive(path);
  const std::vector<std::string>& names = archive.programs();
  const std::unordered_set<std::string> set(names.begin(), names.end());
  if (names.size() == 1) {
    train_name_ = names[0];
    train_ = read(archive, names[0]);
  } else if (set == std::unordered_set<std::string>{"train", "eval"}) {
    train_name_ = "train";
    train_ = read(archive, "train");
    eval_ = read(archive, "eval");
    if (train_->inputs.names() != eval_->inputs.names()) {
      refuse(path,
             "the programs 'train' and 'eval' have different inputs. Export both with the same "
             "arguments");
    }
  } else {
    refuse(path, "the archive holds the programs ", c10::Join(", ", names),
           ". It must hold one, or the two 'train' and 'eval'");
  }
}

std::string Model::module_type(const std::string& module) const {
  const auto found = train_->module_types.find(module);
  return found == train_->module_types.end() ? std::string() : found->second;
}

const Program& Model::program(bool training) const {
  return !training && eval_.has_value() ? *eval_ : *train_;
}

Place Model::place(const Program& program, const std::vector<c10::IValue>& leaves) const {
  Place place;
  if (!registered_.empty()) {
    place.device = registered_.front().tensor.device();
  } else if (!leaves.empty() && leaves.front().isTensor()) {
    place.device = leaves.front().toTensor().device();
  }
  if (program.uses_place_dtype) {
    place.dtype = common_dtype(registered_).value_or(at::kFloat);
  }
  return place;
}

void Model::check_mode(const Program& program, bool training) const {
  const bool after_eval = program.has_training_flags && program.all_flags_off;
  LOCKSTEP_CHECK(!training || !after_eval, "ExportedModule: ", path_,
                 " was exported after model.eval(): its dropout and norms "
                 "are off. Call model->eval() to run or train it like that, or export it again "
                 "after model.train()");
  const std::vector<Finding>& unknown = program.of_unknown_mode;
  if (training || after_eval || eval_.has_value() || unknown.empty()) {
    return;
  }
  throw Error(
      c10::str("ExportedModule: ", path_, ": after eval(), Python may do something else than ",
               "the one program of the archive: ", unknown[0].origin, " ", unknown[0].what,
               unknown.size() > 1 ? c10::str(", and ", unknown.size() - 1, " more") : "",
               ". Export a second program after model.eval(), and package both as \"train\" "
               "and \"eval\" (docs/python-models.md)"));
}

/// Hooks, since a program whose gradient is not asked for is right.
void Model::refuse_lost_gradients(const Program& program, const Values& results) const {
  const std::vector<Finding>& lost = program.lost_gradients;
  if (lost.empty() && (!program.decomposed || without_no_grad_)) {
    return;
  }
  const std::string reason =
      lost.empty()
          ? "if Python's forward() has no torch.no_grad() and no detach_(), say so: "
            "ExportedModuleOptions().without_no_grad(true), in C and Fortran "
            "\"without_no_grad=true\". Else export without it"
          : c10::str(lost[0].origin, " ", lost[0].what, ". Export without run_decompositions()");
  const std::string text =
      c10::str("ExportedModule: ", path_,
               " has no gradients: run_decompositions() loses torch.no_grad(); ", reason);
  for (const c10::IValue& result : results) {
    if (result.isTensor() && result.toTensor().requires_grad() && !result.toTensor().is_leaf()) {
      result.toTensor().register_hook([text](const at::Tensor&) { throw Error(text); });
    }
  }
}

Values Model::run(const std::vector<c10::IValue>& leaves, bool training) const {
  const Program& chosen = program(training);
  check_mode(chosen, training);
  Values results = chosen.run(leaves, place(chosen, leaves), training || eval_.has_value());
  refuse_lost_gradients(chosen, results);
  return results;
}

void Model::move(std::optional<c10::Device> device, std::optional<at::ScalarType> dtype,
                 bool non_blocking) {
  std::unordered_set<std::string> known;
  for (const StoredTensor& stored : registered_) {
    known.insert(stored.name);
  }
  for (std::optional<Program>* program : {&train_, &eval_}) {
    if (!program->has_value()) {
      continue;
    }
    for (const StateSlot& entry : (*program)->state) {
      if (known.count(entry.name) > 0) {
        continue;
      }
      c10::IValue& value = (*program)->initial[static_cast<size_t>(entry.slot)];
      const at::Tensor tensor = value.toTensor();
      const bool cast = dtype.has_value() && entry.kind == StateSlot::Kind::buffer &&
                        at::isFloatingType(tensor.scalar_type());
      value = tensor.to(device.value_or(tensor.device()), cast ? *dtype : tensor.scalar_type(),
                        non_blocking);
    }
  }
}

Model Model::copy(std::optional<c10::Device> device) const {
  Model made(*this);
  StorageCopies copies(device);
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors;
  const auto copied = [&](const at::Tensor& tensor) {
    at::Tensor& known = tensors[tensor.unsafeGetTensorImpl()];
    if (!known.defined()) {
      known = copies.copy(tensor);
    }
    return known;
  };
  for (StoredTensor& stored : made.registered_) {
    stored.tensor = copied(stored.tensor);
  }
  for (std::optional<Program>* program : {&made.train_, &made.eval_}) {
    if (program->has_value()) {
      for (const StateSlot& entry : (*program)->state) {
        c10::IValue& value = (*program)->initial[static_cast<size_t>(entry.slot)];
        value = copied(value.toTensor());
      }
    }
  }
  return made;
}

void Model::save(const std::string& path,
                 const std::vector<std::pair<std::string, at::Tensor>>& instead) const {
  Archive archive(path_);
  NamedTensors weights;
  for (const StoredTensor& stored : registered_) {
    weights.emplace(stored.name, stored.tensor);
  }
  for (const auto& [name, tensor] : instead) {
    LOCKSTEP_CHECK(weights.count(name) > 0, "ExportedModule: save() was given a tensor '", name,
                   "', and ", path_, " has no parameter or buffer of this name");
  }
  const std::vector<NamedTensors> values = {weights, {instead.begin(), instead.end()}};
  Records changed;
  for (const std::optional<Program>* program : {&train_, &eval_}) {
    if (!program->has_value()) {
      continue;
    }
    NamedTensors constants;
    for (const StateSlot& entry : (*program)->state) {
      if (weights.count(entry.name) == 0) {
        constants[entry.name] = (*program)->initial[static_cast<size_t>(entry.slot)].toTensor();
      }
    }
    const std::string name = program == &eval_ ? "eval" : train_name_;
    write_weights(archive, name, values, changed);
    write_constants(archive, name, constants, changed);
  }
  rewrite_archive(archive, path, changed);
}

}  // namespace lockstep::exported
