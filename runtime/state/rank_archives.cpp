#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/state/flat.h>
#include <lockstep/runtime/state/rank_archives.h>

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse_parts(const std::string& name) {
  throw Error(c10::str("the state ", name, " is spread over ranks, and cannot be each rank's own"));
}

}  // namespace

bool SavingOwnArchive::has(const std::string&) const {
  return false;
}

void SavingOwnArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  content_.add_own(section_, name, tensor.detach());
}

void SavingOwnArchive::part(const std::string& name, const at::Tensor&, int64_t,
                            const at::Tensor&) {
  refuse_parts(name);
}

void SavingOwnArchive::number(const std::string& name, int64_t& value) {
  content_.add_own(section_, name, at::scalar_tensor(value, at::kLong));
}

void SavingOwnArchive::real(const std::string& name, double& value) {
  content_.add_own(section_, name, at::scalar_tensor(value, at::kDouble));
}

LoadingOwnArchive::LoadingOwnArchive(const Snapshot& saved, std::string section, int rank)
    : saved_(saved), section_(std::move(section)), rank_(rank) {
  for (const std::string& name : saved_.own_names(section_, rank_)) {
    names_.insert(name);
  }
}

at::Tensor LoadingOwnArchive::read(const std::string& name) const {
  return saved_.read_own(section_, rank_, name);
}

void LoadingOwnArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  const c10::AutoGradMode no_grad(false);
  if (has(name)) {
    tensor.detach().copy_(read(name));
  }
}

void LoadingOwnArchive::part(const std::string& name, const at::Tensor&, int64_t,
                             const at::Tensor&) {
  refuse_parts(name);
}

void LoadingOwnArchive::number(const std::string& name, int64_t& value) {
  if (has(name)) {
    value = read(name).item<int64_t>();
  }
}

void LoadingOwnArchive::real(const std::string& name, double& value) {
  if (has(name)) {
    value = read(name).item<double>();
  }
}

void FirstRankArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor copy = tensor.detach().clone();
  if (copy.numel() > 0) {
    const Communicator& ranks = copy.device() == device_ ? devices_ : hosts_;
    ranks.broadcast(flat_alias(copy, name)).wait();
  }
  inner_.tensor(name, copy);
}

void FirstRankArchive::part(const std::string& name, const at::Tensor&, int64_t,
                            const at::Tensor&) {
  refuse_parts(name);
}

}  // namespace lockstep::detail
