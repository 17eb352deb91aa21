#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/process/impl/rank_streams.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <mutex>
#include <string_view>

namespace lockstep::detail {
namespace {

int64_t seed_of_this_process() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return static_cast<int64_t>(generator.current_seed());
}

int64_t number_of_this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return static_cast<int64_t>(
      mixed_seed(std::hash<std::string_view>()(host.data()), static_cast<uint64_t>(getpid())));
}

}  // namespace

void separate_random_streams(const Communicator& control) {
  const at::Tensor mine = at::empty({2}, at::kLong);
  mine[0] = seed_of_this_process();
  mine[1] = number_of_this_process();
  const at::Tensor all = at::empty({control.size() * 2}, at::kLong);
  control.all_gather(all, mine).wait();
  const int64_t seed = mine[0].item<int64_t>(), process = mine[1].item<int64_t>();
  bool is_alike = false;
  for (int rank = 0; rank < control.rank(); ++rank) {
    if (all[2 * rank + 1].item<int64_t>() == process) {
      return;
    }
    is_alike = is_alike || all[2 * rank].item<int64_t>() == seed;
  }
  if (is_alike) {
    at::manual_seed(mixed_seed(static_cast<uint64_t>(seed), static_cast<uint64_t>(control.rank())));
  }
}

}  // namespace lockstep::detail
