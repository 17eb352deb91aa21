#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/storage/impl/state_copy.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lockstep::detail {
namespace {

/// The part of a tensor on one rank. `is_there`: 0 if that rank could not copy it.
struct Part {
  int64_t begin = 0, numel = 0, is_there = 0;
};

std::vector<Part> parts_of_ranks(const Part& mine, const Communicator& sharers) {
  std::vector<Part> parts;
  for (const std::string& text :
       sharers.all_gather_bytes(std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)))) {
    std::memcpy(&parts.emplace_back(), text.data(), sizeof(Part));
  }
  return parts;
}

}  // namespace

void StateCopy::require_taken() const {
  if (problem_) {
    std::rethrow_exception(problem_);
  }
}

void StateCopy::take(const StateVisit& visit) {
  StateArchive archive(StateArchive::Pass::save, [this](const StateEntry& entry) {
    const c10::AutoGradMode no_grad(false);
    if (entry.is_part() && sharers_) {
      gather(entry);
    } else {
      attempt([&] { copy(entry); });
    }
  });
  visit(archive);
}

/// Runs `action` and catches its exception. Does nothing after a first exception.
void StateCopy::attempt(const std::function<void()>& action) {
  if (problem_) {
    return;
  }
  try {
    action();
  } catch (...) {
    problem_ = std::current_exception();
  }
}

void StateCopy::copy(const StateEntry& entry) {
  if (entry.kind != StateEntry::Kind::number && entry.kind != StateEntry::Kind::real) {
    const bool moves = on_host_ && !entry.place.is_cpu();
    tensors_[entry.name] = moves ? entry.place.cpu() : entry.place.clone();
  } else {
    numbers_[entry.name] = entry.place;
  }
}

void StateCopy::gather(const StateEntry& part) {
  at::Tensor whole;
  attempt([&] {
    const at::Tensor host = at::empty({part.like.numel()}, part.place.options().device(at::kCPU));
    host.narrow(0, part.begin, part.place.numel()).copy_(part.place);
    whole = host;
  });
  const std::vector<Part> parts =
      parts_of_ranks({part.begin, part.place.numel(), whole.defined()}, *sharers_);
  const auto failed =
      std::find_if(parts.begin(), parts.end(), [](const Part& each) { return each.is_there == 0; });
  if (failed != parts.end()) {
    attempt([&] {
      throw Error(c10::str("rank ", failed - parts.begin(), " could not take ", part.name),
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
  tensors_[part.name] = whole;
}

at::Tensor StateCopy::copy_of(const std::string& name) const {
  for (const auto* copies : {&tensors_, &numbers_}) {
    if (const auto found = copies->find(name); found != copies->end()) {
      return found->second;
    }
  }
  return {};
}

void StateCopy::give_back(const StateVisit& visit) const {
  const auto write = [this](const StateEntry& entry) {
    const c10::AutoGradMode no_grad(false);
    if (const at::Tensor copy = copy_of(entry.name); copy.defined()) {
      const bool is_whole = entry.is_part() && sharers_;
      entry.place.copy_(is_whole ? copy.narrow(0, entry.begin, entry.place.numel()) : copy);
    }
  };
  StateArchive archive(StateArchive::Pass::load, write,
                       [this](const std::string& name) { return copy_of(name).defined(); });
  visit(archive);
}

}  // namespace lockstep::detail
