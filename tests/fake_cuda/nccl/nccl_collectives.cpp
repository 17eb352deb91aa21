#include <nccl.h>

#include "../common/work.h"
#include "group.h"
#include "live_communicators.h"
#include "reduction.h"

/// NCCL's calls on streams.
namespace fake_cuda {
namespace {

ncclResult_t refuse(const char* function, const std::string& why,
                    ncclResult_t error = ncclInvalidArgument) {
  set_last_error(std::string(function) + ": " + why);
  Group::get().fail(error);
  return error;
}

/// What calls have in common: a communicator that is ready, and a known type.
ncclResult_t check(const char* function, const Comm& comm, ncclDataType_t type) {
  if (comm == nullptr) {
    return refuse(function, "there is no such communicator");
  }
  const ncclResult_t ready = comm->check_ready();
  if (ready != ncclSuccess) {
    Group::get().fail(ready);
    return ready;
  }
  return bytes_of(type) == 0 ? refuse(function, "there is no such type") : ncclSuccess;
}

bool reduces(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter ||
         kind == CallKind::reduce;
}

struct Buffers {
  const void* input;
  void* output;
};

ncclResult_t collective(const char* function, ncclComm_t handle, cudaStream_t stream, CallKind kind,
                        Buffers buffers, size_t elements, ncclDataType_t type,
                        ncclRedOp_t op = ncclSum, int root = 0) {
  const Comm comm = find_comm(handle);
  const ncclResult_t status = check(function, comm, type);
  if (status != ncclSuccess) {
    return status;
  }
  Reduction reduction;
  if (reduces(kind)) {
    const auto known = comm->reduction(op, type);
    if (!known.has_value() || !can_be_reduced(type)) {
      return refuse(function, "this operator cannot reduce " + name_of(type));
    }
    reduction = *known;
  }
  if (root < 0 || root >= comm->place().ranks) {
    return refuse(function, "there is no rank " + std::to_string(root));
  }
  const bool is_root = comm->place().rank == root;
  const bool needs_input = kind != CallKind::broadcast || is_root;
  const bool needs_output = kind != CallKind::reduce || is_root;
  if (elements > 0 &&
      ((needs_input && buffers.input == nullptr) || (needs_output && buffers.output == nullptr))) {
    return refuse(function, "a buffer is null");
  }
  if (elements == 0) {
    return ncclSuccess;
  }
  const Signature signature{kind, type, reduction.shared_op, root, elements};
  return Group::get().add(comm, stream, function,
                          Collective(signature, reduction, buffers.input, buffers.output));
}

ncclResult_t transfer(const char* function, ncclComm_t handle, cudaStream_t stream, bool sends,
                      void* buffer, size_t elements, ncclDataType_t type, int peer) {
  const Comm comm = find_comm(handle);
  const ncclResult_t status = check(function, comm, type);
  if (status != ncclSuccess) {
    return status;
  }
  if (peer < 0 || peer >= comm->place().ranks) {
    return refuse(function, "there is no rank " + std::to_string(peer));
  }
  if (elements > 0 && buffer == nullptr) {
    return refuse(function, "the buffer is null");
  }
  if (elements == 0) {
    return ncclSuccess;
  }
  return Group::get().add(comm, stream, function, Transfer(sends, peer, type, elements, buffer));
}

}  // namespace
}  // namespace fake_cuda

using fake_cuda::CallKind;
using fake_cuda::collective;
using fake_cuda::Group;

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclAllReduce(const void* input, void* output,
                                                       size_t count, ncclDataType_t type,
                                                       ncclRedOp_t op, ncclComm_t comm,
                                                       cudaStream_t stream) {
  return collective(__func__, comm, stream, CallKind::all_reduce, {input, output}, count, type, op);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclReduce(const void* input, void* output, size_t count,
                                                    ncclDataType_t type, ncclRedOp_t op, int root,
                                                    ncclComm_t comm, cudaStream_t stream) {
  return collective(__func__, comm, stream, CallKind::reduce, {input, output}, count, type, op,
                    root);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclReduceScatter(const void* input, void* output,
                                                           size_t count, ncclDataType_t type,
                                                           ncclRedOp_t op, ncclComm_t comm,
                                                           cudaStream_t stream) {
  return collective(__func__, comm, stream, CallKind::reduce_scatter, {input, output}, count, type,
                    op);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclAllGather(const void* input, void* output,
                                                       size_t count, ncclDataType_t type,
                                                       ncclComm_t comm, cudaStream_t stream) {
  return collective(__func__, comm, stream, CallKind::all_gather, {input, output}, count, type);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclBroadcast(const void* input, void* output,
                                                       size_t count, ncclDataType_t type, int root,
                                                       ncclComm_t comm, cudaStream_t stream) {
  return collective(__func__, comm, stream, CallKind::broadcast, {input, output}, count, type,
                    ncclSum, root);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type,
                                                   int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclSend(const void* buffer, size_t count,
                                                  ncclDataType_t type, int peer, ncclComm_t comm,
                                                  cudaStream_t stream) {
  return fake_cuda::transfer(__func__, comm, stream, true, const_cast<void*>(buffer), count, type,
                             peer);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type,
                                                  int peer, ncclComm_t comm, cudaStream_t stream) {
  return fake_cuda::transfer(__func__, comm, stream, false, buffer, count, type, peer);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclAlltoAll(const void* input, void* output, size_t count,
                                                      ncclDataType_t type, ncclComm_t handle,
                                                      cudaStream_t stream) {
  const fake_cuda::Comm comm = fake_cuda::find_comm(handle);
  const ncclResult_t status = fake_cuda::check(__func__, comm, type);
  if (status != ncclSuccess) {
    return status;
  }
  const size_t bytes = count * fake_cuda::bytes_of(type);
  Group::get().start();
  for (int peer = 0; peer < comm->place().ranks; ++peer) {
    ncclSend(static_cast<const char*>(input) + peer * bytes, count, type, peer, handle, stream);
    ncclRecv(static_cast<char*>(output) + peer * bytes, count, type, peer, handle, stream);
  }
  return Group::get().end();
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclGroupStart() {
  Group::get().start();
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclGroupEnd() {
  return Group::get().end();
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                                  ncclDataType_t type,
                                                                  ncclScalarResidence_t residence,
                                                                  ncclComm_t handle) {
  const fake_cuda::Comm comm = fake_cuda::find_comm(handle);
  const ncclResult_t status = fake_cuda::check(__func__, comm, type);
  if (status != ncclSuccess) {
    return status;
  }
  if (op == nullptr || scalar == nullptr) {
    return fake_cuda::refuse(__func__, "an address is null");
  }
  if (type <= ncclUint64 || !fake_cuda::can_be_reduced(type)) {
    return fake_cuda::refuse(__func__, "factors of " + fake_cuda::name_of(type) + " are not known");
  }
  fake_cuda::Reduction reduction;
  reduction.shared_op = fake_cuda::Signature::kPremultipliedSum;
  reduction.factor_type = type;
  if (residence == ncclScalarHostImmediate) {
    reduction.factor = fake_cuda::load_scalar(scalar, type);
  } else {
    reduction.device_factor = scalar;
  }
  *op = comm->add_operator(reduction);
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  const fake_cuda::Comm comm = fake_cuda::find_comm(handle);
  if (comm == nullptr || !comm->remove_operator(op)) {
    return fake_cuda::refuse(__func__, "there is no such operator or communicator");
  }
  return ncclSuccess;
}
