#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/state/memory_archive.h>

#include <algorithm>
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
  at::Tensor whole;
  take([&] {
    const at::Tensor host = at::empty({like.numel()}, elements.options().device(at::kCPU));
    host.narrow(0, begin, elements.numel()).copy_(elements.detach());
    whole = host;
  });
  const std::vector<Part> parts = parts_of_ranks({begin, elements.numel(), whole.defined()});
  const auto failed =
      std::find_if(parts.begin(), parts.end(), [](const Part& part) { return part.is_there == 0; });
  if (failed != parts.end()) {
    take([&] {
      throw Error(c10::str("rank ", failed - parts.begin(), " could not take ", name),
                  ExitCode::out_of_memory);
    });
    return;
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].numel > 0) {
      sharers_
          ->broadcast(whole.narrow(0, parts[rank].begin, parts[rank].numel), static_cast<int>(rank))
          .wait();
    }
  }
  tensors_[name] = whole;
}

std::vector<MemoryArchive::Part> MemoryArchive::parts_of_ranks(const Part& mine) const {
  std::vector<Part> parts;
  for (const std::string& text : sharers_->all_gather_bytes(
           std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)))) {
    std::memcpy(&parts.emplace_back(), text.data(), sizeof(Part));
  }
  return parts;
}

void MemoryArchive::number(const std::string& name, int64_t& value) {
  exchange(numbers_, gives_, name, value);
}

void MemoryArchive::real(const std::string& name, double& value) {
  exchange(reals_, gives_, name, value);
}

}  // namespace lockstep::detail
