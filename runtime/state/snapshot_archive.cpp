#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/state/flat.h>
#include <lockstep/runtime/state/snapshot_archive.h>

#include <utility>

namespace lockstep::detail {
namespace {

/// The sizes under which parts of a tensor are saved: its own if they are neighbours in row-major
/// order, else the number of elements, in the order in which they lie in memory.
std::vector<int64_t> sizes_of_parts(const at::Tensor& like) {
  return like.is_contiguous() ? like.sizes().vec() : std::vector<int64_t>{like.numel()};
}

/// Whether what is saved is the memory of a tensor with other strides, which was saved in parts.
bool is_in_memory_order(const snapshot::SnapshotSection& section, const std::string& name,
                        const at::Tensor& like) {
  return !like.is_contiguous() &&
         at::IntArrayRef(section.sizes(name)) == at::IntArrayRef({like.numel()});
}

/// Elements [begin, end) of the memory of a tensor like `like`.
at::Tensor read_memory(const snapshot::SnapshotSection& section, const std::string& name,
                       int64_t begin, int64_t end, const at::Tensor& like) {
  if (like.is_contiguous() || is_in_memory_order(section, name, like)) {
    return section.read_elements(name, begin, end);
  }
  const auto options = like.options().device(at::kCPU).dtype(section.dtype(name));
  const at::Tensor whole = at::empty_like(like, options);
  whole.copy_(section.read(name));
  return flat_alias(whole, name).narrow(0, begin, end - begin);
}

}  // namespace

bool SavingArchive::has(const std::string&) const {
  return false;
}

void SavingArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  content_.add(section_, name, tensor.detach());
}

void SavingArchive::part(const std::string& name, const at::Tensor& elements, int64_t begin,
                         const at::Tensor& like) {
  if (elements.numel() == 0 && like.numel() > 0) {
    return;
  }
  content_.add_slice(section_, name, elements.detach(), begin, sizes_of_parts(like));
}

void SavingArchive::number(const std::string& name, int64_t& value) {
  content_.add(section_, name, at::scalar_tensor(value, at::kLong));
}

void SavingArchive::real(const std::string& name, double& value) {
  content_.add(section_, name, at::scalar_tensor(value, at::kDouble));
}

bool CheckingArchive::found(const std::string& name) {
  if (!section_.has(name)) {
    report_.missing.push_back(name);
    return false;
  }
  used_.insert(name);
  return true;
}

void CheckingArchive::compare(const std::string& name, at::IntArrayRef sizes,
                              at::ScalarType dtype) {
  const std::string why = snapshot::why_misshapen(section_, name, sizes, dtype);
  if (!why.empty()) {
    report_.misshapen.push_back(name + ": " + why);
  }
}

void CheckingArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  if (found(name)) {
    const at::IntArrayRef sizes = tensor.sizes();
    const std::vector<int64_t> flat = {tensor.numel()};
    compare(name, is_in_memory_order(section_, name, tensor) ? flat : sizes, tensor.scalar_type());
  }
}

void CheckingArchive::part(const std::string& name, const at::Tensor& elements, int64_t,
                           const at::Tensor& like) {
  if (found(name)) {
    const std::vector<int64_t> flat = {like.numel()};
    compare(name, is_in_memory_order(section_, name, like) ? at::IntArrayRef(flat) : like.sizes(),
            elements.scalar_type());
  }
}

void CheckingArchive::number(const std::string& name, int64_t&) {
  if (found(name)) {
    compare(name, {}, at::kLong);
  }
}

void CheckingArchive::real(const std::string& name, double&) {
  if (found(name)) {
    compare(name, {}, at::kDouble);
  }
}

snapshot::LoadReport CheckingArchive::finish() {
  for (const std::string& name : section_.names()) {
    if (used_.count(name) == 0) {
      report_.unexpected.push_back(name);
    }
  }
  return std::move(report_);
}

void LoadingArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor target = tensor.detach();
  if (is_in_memory_order(section_, name, target)) {
    flat_alias(target, name).copy_(section_.read(name));
  } else {
    target.copy_(section_.read(name));
  }
}

void LoadingArchive::part(const std::string& name, const at::Tensor& elements, int64_t begin,
                          const at::Tensor& like) {
  const c10::AutoGradMode no_grad(false);
  elements.detach().copy_(read_memory(section_, name, begin, begin + elements.numel(), like));
}

void LoadingArchive::number(const std::string& name, int64_t& value) {
  value = section_.read(name).item<int64_t>();
}

void LoadingArchive::real(const std::string& name, double& value) {
  value = section_.read(name).item<double>();
}

}  // namespace lockstep::detail
