#include "doctor/rank_findings.h"

#include <ATen/ATen.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

namespace lockstep::doctor {

Finding finding_of(const std::function<Finding()>& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {Status::failure, text.substr(0, text.find('\n')),
            "the message says what to do; report it with the file of --json if it does not"};
  }
}

Finding or_leave(const std::function<Finding()>& action) {
  try {
    return action();
  } catch (const std::exception&) {
    detail::leave_because(std::current_exception());
    throw;
  }
}

Finding worst_of(const Communicator& control, const Finding& mine) {
  const nlohmann::json own{static_cast<int>(mine.status), mine.what, mine.fix};
  Finding worst;
  int rank = 0;
  for (const std::string& text : control.all_gather_bytes(own.dump())) {
    const auto json = nlohmann::json::parse(text);
    const Finding other{json[0].get<Status>(), json[1], json[2]};
    if (rank == 0 || other.status > worst.status) {
      worst = other;
      if (rank > 0 && worst.status >= Status::warning) {
        worst.what = c10::str("rank ", rank, ": ", worst.what);
      }
    }
    ++rank;
  }
  return worst;
}

std::vector<int> ranks_that_differ(const Communicator& control, const std::string& bytes) {
  const std::vector<std::string> all = control.all_gather_bytes(bytes);
  std::vector<int> found;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all.front()) {
      found.push_back(static_cast<int>(rank));
    }
  }
  return found;
}

std::string names_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t k = 0; k < ranks.size(); ++k) {
    text += (k == 0 ? "" : ", ") + std::to_string(ranks[k]);
  }
  return text;
}

std::string digest_of(const std::vector<at::Tensor>& tensors) {
  uint64_t digest = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) {
      const at::Tensor host = tensor.detach().cpu().contiguous();
      digest = XXH3_64bits_withSeed(host.const_data_ptr(), host.nbytes(), digest);
    }
  }
  return {reinterpret_cast<const char*>(&digest), sizeof digest};
}

}  // namespace lockstep::doctor
