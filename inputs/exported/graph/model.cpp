#include <lockstep/collectives/check.h>
#include <lockstep/inputs/exported/archive/archive.h>
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

bool floating(const StoredTensor& stored) {
  return stored.parameter && at::isFloatingType(stored.tensor.scalar_type());
}

/// The dtype of most elements of the parameters.
std::optional<at::ScalarType> common_dtype(const std::vector<StoredTensor>& tensors) {
  std::map<at::ScalarType, int64_t> elements;
  for (const StoredTensor& stored : tensors) {
    if (floating(stored)) {
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
    Program program = compile(json, home);
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

Model::Model(const std::string& path) : path_(path) {
  Archive archive(path);
  const std::vector<std::string>& names = archive.programs();
  const std::unordered_set<std::string> set(names.begin(), names.end());
  if (names.size() == 1) {
    train_ = read(archive, names[0]);
  } else if (set == std::unordered_set<std::string>{"train", "eval"}) {
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

Values Model::run(const std::vector<c10::IValue>& leaves, bool training) const {
  const Program& chosen = program(training);
  LOCKSTEP_CHECK(!training || !chosen.has_training_flags || !chosen.all_flags_off,
                 "ExportedModule: ", path_,
                 " was exported after model.eval(): its dropout and norms "
                 "are off. Call model->eval() to run or train it like that, or export it again "
                 "after model.train()");
  return chosen.run(leaves, place(chosen, leaves), training || eval_.has_value());
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

}  // namespace lockstep::exported
