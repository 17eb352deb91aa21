#pragma once

#include <lockstep/collectives/host/node_engine.h>
#include <lockstep/collectives/host/node_steps.h>
#include <lockstep/collectives/host/shared_buffers.h>
#include <lockstep/collectives/impl/transport.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Collectives of host tensors: within a node through shared memory, between nodes through the
/// engine's InterNode. A subclass provides split_ranks() and share_memory().
class HostTransport : public Transport {
 public:
  ~HostTransport() override;
  HostTransport(const HostTransport&) = delete;
  HostTransport& operator=(const HostTransport&) = delete;

  int rank() const override { return engine_->world().rank; }
  int size() const override { return engine_->world().size; }
  int local_rank() const override { return engine_->group().rank(); }
  int local_size() const override { return engine_->group().size(); }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) override;
  std::shared_ptr<Operation> all_gather(const at::Tensor& output, const at::Tensor& input) override;
  std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) override;
  std::shared_ptr<Operation> barrier() override;
  std::shared_ptr<Transport> split(int color, int key) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  void progress() override { engine_->advance(); }
  const CollectiveLog& log() const override { return engine_->log(); }
  bool can_be_left() const override { return true; }
  void attend(const std::shared_ptr<Attendance>& attendance, const std::string& name) override {
    engine_->attend(attendance, name);
  }
  std::shared_ptr<Attendance> attendance() const override { return engine_->attendance(); }
  std::string attended_name() const override { return engine_->name(); }
  void on_idle(std::function<void()> callback) override { engine_->on_idle(std::move(callback)); }

 protected:
  explicit HostTransport(std::shared_ptr<NodeEngine> engine);

  /// The arguments of each rank in a call of split().
  struct SplitWish {
    int64_t color;
    int64_t key;
    int64_t rank;
  };
  /// `wishes`: of all ranks, in rank order. No collective is pending. Null for a negative color.
  virtual std::shared_ptr<Transport> split_ranks(const std::vector<SplitWish>& wishes) = 0;
  /// New memory of each rank of this node, in their order. No collective is pending.
  virtual std::vector<std::shared_ptr<SharedMemory>> share_memory(size_t bytes) = 0;

  /// Blocking all_gather of raw bytes over all ranks, checked as a call of `call`'s verb.
  void gather(CollectiveCall call, const void* own, size_t bytes, void* all);
  NodeEngine& engine() { return *engine_; }

 private:
  Span host_span(const at::Tensor& tensor, Verb verb) const;
  std::unique_ptr<CollectiveStep> all_gather_step(Span output, Span input);
  std::unique_ptr<CollectiveStep> barrier_step();

  std::shared_ptr<NodeEngine> engine_;
  SharedBuffers shared_buffers_;
  int splits_ = 0;
};

}  // namespace lockstep::detail
