#include <ATen/ops/scalar_tensor.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <utility>

namespace lockstep {

StateArchive::StateArchive(Pass pass, std::function<void(const StateEntry&)> each,
                           std::function<bool(const std::string&)> has)
    : pass_(pass), each_(std::move(each)), has_(std::move(has)) {}

void StateArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  each_({name, StateEntry::Kind::tensor, tensor.detach(), 0, {}});
}

void StateArchive::passing(const std::string& name, const at::Tensor& tensor) {
  each_({name, StateEntry::Kind::passing, tensor.detach(), 0, {}});
}

void StateArchive::part(const std::string& name, const at::Tensor& elements, int64_t begin,
                        const at::Tensor& like) {
  each_({name, StateEntry::Kind::part, elements.detach(), begin, like});
}

void StateArchive::number(const std::string& name, int64_t& value) {
  const at::Tensor place = at::scalar_tensor(value, at::kLong);
  each_({name, StateEntry::Kind::number, place, 0, {}});
  if (loading()) {
    value = *place.const_data_ptr<int64_t>();
  }
}

void StateArchive::real(const std::string& name, double& value) {
  const at::Tensor place = at::scalar_tensor(value, at::kDouble);
  each_({name, StateEntry::Kind::real, place, 0, {}});
  if (loading()) {
    value = *place.const_data_ptr<double>();
  }
}

}  // namespace lockstep
