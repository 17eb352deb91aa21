#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/node_memory.h>

#include <functional>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// Runtime::construct(): the ranks of a node make their models one after another. On hosts the
/// first rank of a node copies its weights to memory of the node; each rank then drops those of its
/// own weights that have the same bits, and shows the node's through NodeMemory::own().
/// Every rank of `ranks` makes one, and calls run() once.
class Construction {
 public:
  Construction(const Communicator& ranks, c10::Device device);

  /// `make` makes the model of this rank. Collective.
  void run(const std::function<torch::nn::Module&()>& make);

 private:
  /// Parameters that can move, in the order of registration.
  static std::vector<at::Tensor> movable(const torch::nn::Module& module);
  /// Bytes in the node's memory.
  static size_t bytes_of(const std::vector<at::Tensor>& parameters);
  /// Calls `form` with each parameter and the node's memory for it, up to the end of that memory.
  template <typename Form>
  void each(const Form& form) const;
  void publish() const;
  /// Moves the parameters of this rank that have the node's bits.
  void take() const;

  const Communicator& ranks_;
  c10::Device device_;
  std::vector<at::Tensor> parameters_;  // of this rank, once it has made them
  std::shared_ptr<NodeMemory> node_;
};

}  // namespace lockstep::detail
