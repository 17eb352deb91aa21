#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::detail {

/// Copies named state to memory, then writes it back: with `sharers` into any bucket layout, else
/// into the same. What was not copied stays as it is.
/// Ranks: take() is collective where the state is spread over ranks. Its errors are thrown by
/// require_taken(), so a rank without memory still joins the collectives. Threads: one.
class StateCopy {
 public:
  /// `sharers`: the host communicator of the ranks over which the state is spread, whose parts are
  /// gathered. Unset: each rank copies its parts. `on_host`: copies are in host memory.
  explicit StateCopy(std::optional<Communicator> sharers = {}, bool on_host = false)
      : sharers_(std::move(sharers)), on_host_(on_host) {}

  /// Copies what `visit` names. An exception of `visit` itself is not caught.
  void take(const StateVisit& visit);
  /// Throws the first exception that take() caught. Local.
  void require_taken() const;
  /// Writes the copies to what `visit` names. Local.
  void give_back(const StateVisit& visit) const;

  /// The copied tensors by name; gathered parts whole, 1-dimensional, on the host.
  const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }

 private:
  void attempt(const std::function<void()>& action);
  void copy(const StateEntry& entry);
  void gather(const StateEntry& part);
  at::Tensor copy_of(const std::string& name) const;

  std::optional<Communicator> sharers_;
  bool on_host_;
  std::exception_ptr problem_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, at::Tensor> numbers_;
};

}  // namespace lockstep::detail
