#include "mpi_process_group.h"

#include <mpi.h>

namespace lockstep::testing {
namespace {

MPI_Datatype datatype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kInt:
      return MPI_INT;
    default:
      TORCH_CHECK(false, "no reduction of ", tensor.scalar_type());
  }
}

c10::intrusive_ptr<c10d::Work> done(const std::vector<at::Tensor>& tensors) {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(tensors);
  return c10d::Work::create_from_future(future);
}

class MpiBackend final : public c10d::Backend {
 public:
  using Backend::Backend;

  const std::string getBackendName() const override { return "blocking-mpi"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "only sums");
    for (const at::Tensor& tensor : tensors) {
      MPI_Allreduce(MPI_IN_PLACE, tensor.data_ptr(), static_cast<int>(tensor.numel()),
                    datatype(tensor), MPI_SUM, MPI_COMM_WORLD);
    }
    return done(tensors);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    for (const at::Tensor& tensor : tensors) {
      MPI_Bcast(tensor.data_ptr(), static_cast<int>(tensor.nbytes()), MPI_BYTE,
                static_cast<int>(options.rootRank), MPI_COMM_WORLD);
    }
    return done(tensors);
  }
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_mpi_process_group() {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<MpiBackend>(rank, size));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

}  // namespace lockstep::testing
