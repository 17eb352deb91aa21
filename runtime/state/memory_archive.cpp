#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/state/memory_archive.h>

#include <cstring>
#include <vector>

namespace lockstep::detail {
namespace {

template <typename Value>
void exchange(std::map<std::string, Value>& kept, bool gives, const std::string& name,
              Value& value) {
  if (!gives) {
    kept[name] = value;
  } else if (const auto found = kept.find(name); found != kept.end()) {
    value = found->second;
  }
}

}  // namespace

void MemoryArchive::give_back() {
  if (problem_) {
    std::rethrow_exception(problem_);
  }
  gives_ = true;
}

/// Nothing more once something failed.
void MemoryArchive::take(const std::function<void()>& action) {
  if (problem_) {
    return;
  }
  try {
    action();
  } catch (...) {
    problem_ = std::current_exception();
  }
}

bool MemoryArchive::has(const std::string& name) const {
  return tensors_.count(name) > 0 || numbers_.count(name) > 0 || reals_.count(name) > 0;
}

void MemoryArchive::tensor(const std::string& name, const at::Tensor& tensor) {
  const c10::AutoGradMode no_grad(false);
  if (!gives_) {
    take([&] {
      const at::Tensor taken = tensor.detach();
      tensors_[name] = on_host_ && !taken.is_cpu() ? taken.cpu() : taken.clone();
    });
  } else if (const auto found = tensors_.find(name); found != tensors_.end()) {
    tensor.detach().copy_(found->second);
  }
}

void MemoryArchive::part(const std::string& name, const at::Tensor& elements, int64_t begin,
                         const at::Tensor& like) {
  const c10::AutoGradMode no_grad(false);
  if (gives_) {
    if (const auto found = tensors_.find(name); found != tensors_.end()) {
      elements.detach().copy_(found->second.narrow(0, begin, elements.numel()));
    }
    return;
  }
  std::string mine(reinterpret_cast<const char*>(&begin), sizeof(begin));
  at::Tensor whole;
  take([&] {
    const at::Tensor host = elements.detach().to(at::kCPU).contiguous();
    whole = at::empty({like.numel()}, host.options());
    mine.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  });
  const std::vector<std::string> parts = sharers_->all_gather_bytes(mine);
  if (!whole.defined()) {
    return;
  }
  auto* bytes = static_cast<char*>(whole.mutable_data_ptr());
  for (const std::string& theirs : parts) {
    int64_t first = 0;
    std::memcpy(&first, theirs.data(), sizeof(first));
    if (theirs.size() > sizeof(first)) {
      std::memcpy(bytes + static_cast<size_t>(first) * whole.element_size(),
                  theirs.data() + sizeof(first), theirs.size() - sizeof(first));
    }
  }
  tensors_[name] = whole;
}

void MemoryArchive::number(const std::string& name, int64_t& value) {
  exchange(numbers_, gives_, name, value);
}

void MemoryArchive::real(const std::string& name, double& value) {
  exchange(reals_, gives_, name, value);
}

}  // namespace lockstep::detail
