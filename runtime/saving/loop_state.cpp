#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/saving/impl/loop_state.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr char kStateSection[] = "state";
constexpr char kUndefined[] = ".undefined";  // the name's ending where there was no tensor

template <typename... Cases>
struct Visitor : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Visitor(Cases...) -> Visitor<Cases...>;

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

bool is_number(const at::Tensor& value, at::ScalarType type) {
  return value.defined() && value.dim() == 0 && value.scalar_type() == type;
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  const at::Tensor here = bytes.cpu().contiguous();
  const auto* first = here.const_data_ptr<uint8_t>();
  return {first, first + here.numel()};
}

const char* kind_of(const LoopState::Place& place) {
  return std::visit(
      Visitor{[](const at::Tensor*) { return "a tensor"; },
              [](const double*) { return "a double"; }, [](const int64_t*) { return "an int64_t"; },
              [](const std::string*) { return "a std::string"; }},
      place);
}

bool fits(const LoopState::Place& place, const at::Tensor& value) {
  return std::visit(Visitor{[](const at::Tensor*) { return true; },
                            [&](const double*) { return is_number(value, at::kDouble); },
                            [&](const int64_t*) { return is_number(value, at::kLong); },
                            [&](const std::string*) {
                              return value.defined() && value.dim() == 1 &&
                                     value.scalar_type() == at::kByte;
                            }},
                    place);
}

/// Throws Error if `value` and the variable are of different kinds.
void require_fit(const std::string& name, const LoopState::Place& place, const at::Tensor& value) {
  LOCKSTEP_CHECK_CODE(fits(place, value), ExitCode::snapshot, "state(\"", name, "\") is ",
                      kind_of(place), " now, the snapshot has ",
                      value.defined()
                          ? c10::str("a tensor ", value.scalar_type(), " ", value.sizes())
                          : std::string("an undefined tensor"),
                      "; resume with the program of the saved run, or take another name");
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() &&
         (!a.defined() || (a.scalar_type() == b.scalar_type() && at::equal(a, b)));
}

std::set<int> ranks_with_values(const Snapshot& saved) {
  std::set<int> ranks;
  for (const auto& [name, file] : saved.manifest().files) {
    if (file.role == snapshot::FileRole::own && file.section == kStateSection) {
      ranks.insert(file.rank);
    }
  }
  return ranks;
}

std::map<std::string, at::Tensor> values_of_rank(const Snapshot& saved, int rank) {
  std::map<std::string, at::Tensor> values;
  for (const std::string& name : saved.own_names(kStateSection, rank)) {
    if (ends_with(name, kUndefined)) {
      values[name.substr(0, name.size() - sizeof(kUndefined) + 1)] = at::Tensor();
    } else {
      values[name] = saved.read_own(kStateSection, rank, name).clone();
    }
  }
  return values;
}

}  // namespace

void LoopState::add(const std::string& name, Place place) {
  LOCKSTEP_CHECK(!name.empty() && !ends_with(name, kUndefined), "state(): \"", name,
                 "\" is no name; expected one letter or more, not ending in ", kUndefined);
  const auto* tensor = std::get_if<at::Tensor*>(&place);
  snapshot::require_storable(
      name, tensor != nullptr && (*tensor)->defined() ? **tensor : at::empty({0}, at::kByte));
  if (const auto found = waiting_.find(name); found != waiting_.end()) {
    require_fit(name, place, found->second);
    give(place, found->second);
    waiting_.erase(found);
  }
  places_[name] = place;
}

void LoopState::save(snapshot::Content& content) const {
  for (const auto& [name, place] : places_) {
    const auto add = [&, &name = name](const at::Tensor& value) {
      content.add_own(kStateSection, name, value);
    };
    std::visit(Visitor{[&, &name = name](const at::Tensor* tensor) {
                         if (tensor->defined()) {
                           snapshot::require_storable(name, *tensor);
                           add(tensor->detach().contiguous());
                         } else {
                           content.add_own(kStateSection, name + kUndefined,
                                           at::empty({0}, at::kByte));
                         }
                       },
                       [&](const double* real) { add(at::scalar_tensor(*real, at::kDouble)); },
                       [&](const int64_t* number) { add(at::scalar_tensor(*number, at::kLong)); },
                       [&](const std::string* text) { add(bytes_of(*text)); }},
               place);
  }
}

/// The values of this rank. On another number of ranks, those that all saved ranks had in common.
LoopState::Values LoopState::values_for(const Snapshot& saved, int rank, int ranks) {
  const int saved_ranks = static_cast<int>(saved.manifest().world_size);
  if (saved_ranks == ranks) {
    return values_of_rank(saved, rank);
  }
  const std::set<int> saving = ranks_with_values(saved);
  if (static_cast<int>(saving.size()) < saved_ranks) {
    return {};
  }
  Values values = values_of_rank(saved, 0);
  for (const int other : saving) {
    const Values theirs = values_of_rank(saved, other);
    for (auto value = values.begin(); value != values.end();) {
      const auto found = theirs.find(value->first);
      const bool is_alike = found != theirs.end() && same(found->second, value->second);
      value = is_alike ? std::next(value) : values.erase(value);
    }
  }
  return values;
}

void LoopState::check(const Snapshot& saved, int rank, int ranks) const {
  const Values values = values_for(saved, rank, ranks);
  for (const auto& [name, place] : places_) {
    if (const auto found = values.find(name); found != values.end()) {
      require_fit(name, place, found->second);
    }
  }
}

std::vector<std::string> LoopState::load(const Snapshot& saved, int rank, int ranks) {
  waiting_ = values_for(saved, rank, ranks);
  const int saved_ranks = static_cast<int>(saved.manifest().world_size);
  const Values all = saved_ranks == ranks ? waiting_ : values_of_rank(saved, 0);
  std::vector<std::string> notes;
  for (const auto& [name, value] : all) {
    if (waiting_.count(name) == 0) {
      notes.push_back(
          c10::str("state(\"", name, "\") stays as it is: each of the ", saved_ranks,
                   " ranks of the saved run had a value of its own; ranks now: ", ranks));
    }
  }
  for (const auto& [name, place] : places_) {
    if (const auto found = waiting_.find(name); found != waiting_.end()) {
      give(place, found->second);
      waiting_.erase(found);
    } else if (all.count(name) == 0) {
      notes.push_back(c10::str("state(\"", name, "\") stays as it is: the snapshot has none"));
    }
  }
  return notes;
}

LoopState::Values LoopState::keep() const {
  Values values;
  for (const auto& [name, place] : places_) {
    values[name] = std::visit(
        Visitor{[](const at::Tensor* tensor) {
                  return tensor->defined() ? tensor->detach().clone() : at::Tensor();
                },
                [](const double* real) { return at::scalar_tensor(*real, at::kDouble); },
                [](const int64_t* number) { return at::scalar_tensor(*number, at::kLong); },
                [](const std::string* text) { return bytes_of(*text); }},
        place);
  }
  return values;
}

void LoopState::give_back(const Values& kept) const {
  for (const auto& [name, place] : places_) {
    if (const auto found = kept.find(name); found != kept.end()) {
      give(place, found->second.defined() ? found->second.clone() : found->second);
    }
  }
}

void LoopState::give(const Place& place, const at::Tensor& value) const {
  std::visit(Visitor{[&](at::Tensor* tensor) {
                       const c10::Device device = tensor->defined() ? tensor->device() : device_;
                       *tensor = value.defined() ? value.to(device) : at::Tensor();
                     },
                     [&](double* real) { *real = value.item<double>(); },
                     [&](int64_t* number) { *number = value.item<int64_t>(); },
                     [&](std::string* text) { *text = text_of(value); }},
             place);
}

}  // namespace lockstep::detail
