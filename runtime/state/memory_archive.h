#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/state_archive.h>

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Carries state from one layout of the buckets to another, by name, in memory: first it takes what
/// is named, then it gives that back. What it does not have stays as it is.
/// Ranks: taking is collective where the state is spread over ranks. What cannot be taken is told
/// by give_back(), so that a rank without memory still meets the others in what follows.
class MemoryArchive final : public StateArchive {
 public:
  /// `sharers`: the hosts of the ranks over which the state is spread, if it is. `on_host`: it
  /// takes no memory of a device.
  explicit MemoryArchive(std::optional<Communicator> sharers, bool on_host = false)
      : sharers_(std::move(sharers)), on_host_(on_host) {}

  /// From here on it gives. Throws the first exception of what could not be taken. Local.
  void give_back();
  /// What was taken, by name.
  const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }

  Pass pass() const override { return gives_ ? Pass::load : Pass::save; }
  bool has(const std::string& name) const override;
  void tensor(const std::string& name, const at::Tensor& tensor) override;
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like) override;
  void number(const std::string& name, int64_t& value) override;
  void real(const std::string& name, double& value) override;

 private:
  /// Of a tensor, on one rank. `is_there`: 0 where that rank could not take it.
  struct Part {
    int64_t begin = 0, numel = 0, is_there = 0;
  };
  std::vector<Part> parts_of_ranks(const Part& mine) const;
  void take(const std::function<void()>& action);

  std::optional<Communicator> sharers_;
  bool on_host_ = false;
  bool gives_ = false;
  std::exception_ptr problem_;
  std::map<std::string, at::Tensor> tensors_;  // parts: whole, 1-dimensional, on the host
  std::map<std::string, int64_t> numbers_;
  std::map<std::string, double> reals_;
};

}  // namespace lockstep::detail
