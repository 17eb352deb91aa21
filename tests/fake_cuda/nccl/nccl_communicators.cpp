#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <system_error>

#include "../common/work.h"
#include "communicator.h"
#include "group.h"
#include "live_communicators.h"

/// NCCL's communicators and what belongs to them.
namespace fake_cuda {
namespace {

ncclResult_t refuse(const char* function, const std::string& why,
                    ncclResult_t error = ncclInvalidArgument) {
  set_last_error(std::string(function) + ": " + why);
  return error;
}

struct Options {
  bool is_blocking = true;
  bool shares_buffers = false;
};

/// What is asked for in a configuration; what is not asked for stays as it is.
ncclResult_t read_config(const char* function, const ncclConfig_t* config, Options* options) {
  if (config == nullptr) {
    return ncclSuccess;
  }
  if (config->magic != 0xcafebeef) {
    return refuse(function, "the configuration is not initialized");
  }
  for (const int value : {config->blocking, config->splitShare}) {
    if (value != NCCL_CONFIG_UNDEF_INT && value != 0 && value != 1) {
      return refuse(function, "an option of the configuration is neither 0 nor 1");
    }
  }
  if (config->blocking != NCCL_CONFIG_UNDEF_INT) {
    options->is_blocking = config->blocking == 1;
  }
  options->shares_buffers = config->splitShare == 1;
  return ncclSuccess;
}

/// Starts what makes a communicator, and gives its handle away if that did not fail at once.
ncclResult_t start_making(ncclComm_t* handle, const Comm& made, const Comm& starter,
                          ncclComm::Job job) {
  Group& group = Group::get();
  if (made != nullptr) {
    add_comm(made);
    *handle = made.get();
  }
  const bool on_thread = group.is_open() || !(made != nullptr ? made : starter)->is_blocking();
  const ncclResult_t result =
      starter->start(std::move(job), on_thread, made == starter ? nullptr : made);
  if (group.is_open()) {
    group.add_job(starter);
    return ncclSuccess;
  }
  if (result != ncclSuccess && result != ncclInProgress && made != nullptr) {
    remove_comm(made);
    *handle = nullptr;
  }
  return result;
}

ncclResult_t init(const char* function, ncclComm_t* handle, int ranks, const ncclUniqueId& id,
                  int rank, const ncclConfig_t* config) {
  if (handle == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return refuse(function,
                  "there is no rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  if (ranks > kMostRanks) {
    return refuse(function,
                  "the fake NCCL knows no more than " + std::to_string(kMostRanks) + " ranks");
  }
  Options options;
  const ncclResult_t status = read_config(function, config, &options);
  if (status != ncclSuccess) {
    return status;
  }
  ncclComm::Place place{rank, ranks, 0};
  if (cudaGetDevice(&place.device) != cudaSuccess) {
    return refuse(function, "there is no device", ncclUnhandledCudaError);
  }
  const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  auto comm = std::make_shared<ncclComm>(place, options.is_blocking, std::make_shared<Lane>());
  return start_making(handle, comm, comm, [comm = comm.get(), name] {
    return comm->join(name, Board::Open::existing);
  });
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT: the rest are NCCL's own names

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) {
    return ncclInvalidArgument;
  }
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

extern "C" FAKE_CUDA_EXPORT const char* ncclGetLastError(ncclComm_t handle) {
  thread_local std::string text;
  const Comm comm = find_comm(handle);
  text = comm == nullptr || comm->error_text().empty() ? last_error() : comm->error_text();
  return text.c_str();
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) {
    return refuse(__func__, "no place for the id");
  }
  try {
    const std::string name = Board::make_name();
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "%s", name.c_str());
    return ncclSuccess;
  } catch (const std::system_error& error) {
    return refuse(__func__, error.what(), ncclSystemError);
  }
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks,
                                                                ncclUniqueId id, int rank,
                                                                ncclConfig_t* config) {
  return init(__func__, comm, ranks, id, rank, config);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks,
                                                          ncclUniqueId id, int rank) {
  return init(__func__, comm, ranks, id, rank, nullptr);
}

/// All ranks meet at the first id.
extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks,
                                                                  int rank, int number_of_ids,
                                                                  ncclUniqueId* ids,
                                                                  ncclConfig_t* config) {
  if (number_of_ids < 1 || number_of_ids > ranks || ids == nullptr) {
    return refuse(__func__, "no ids, or more than ranks");
  }
  return init(__func__, comm, ranks, ids[0], rank, config);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks,
                                                         const int* devices) {
  ncclUniqueId id;
  int before = 0;
  const ncclResult_t made = ncclGetUniqueId(&id);
  if (made != ncclSuccess || cudaGetDevice(&before) != cudaSuccess) {
    return made != ncclSuccess ? made : ncclUnhandledCudaError;
  }
  Group::get().start();
  for (int rank = 0; rank < ranks; ++rank) {
    const bool has_device = cudaSetDevice(devices == nullptr ? rank : devices[rank]) == cudaSuccess;
    const ncclResult_t result = has_device ? init(__func__, comms + rank, ranks, id, rank, nullptr)
                                           : ncclUnhandledCudaError;
    Group::get().fail(result);
  }
  cudaSetDevice(before);
  return Group::get().end();
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key,
                                                       ncclComm_t* part_handle,
                                                       ncclConfig_t* config) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || part_handle == nullptr) {
    return refuse(__func__, "there is no such communicator, or no place for the part");
  }
  *part_handle = nullptr;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return refuse(__func__, "color " + std::to_string(color));
  }
  Options options{comm->is_blocking(), false};
  ncclResult_t status = read_config(__func__, config, &options);
  if (status == ncclSuccess) {
    status = comm->check_ready();
  }
  if (status != ncclSuccess) {
    return status;
  }
  Comm part;
  if (color != NCCL_SPLIT_NOCOLOR) {
    part = std::make_shared<ncclComm>(
        ncclComm::Place{0, 1, comm->place().device}, options.is_blocking,
        options.shares_buffers ? comm->lane() : std::make_shared<Lane>());
  }
  // As in NCCL 2.28.9 and 2.30.7 on an H100: the call says ncclSuccess while it is in progress, and
  // the handle is there when the communicator is ready again.
  ncclComm_t later = nullptr;
  const ncclResult_t started =
      start_making(&later, part, comm, [comm = comm.get(), color, key, part, part_handle] {
        const ncclResult_t result = comm->split(color, key, part);
        __atomic_store_n(part_handle, result == ncclSuccess ? part.get() : nullptr,
                         __ATOMIC_RELEASE);
        return result;
      });
  return started == ncclInProgress ? ncclSuccess : started;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t handle,
                                                               ncclResult_t* state) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || state == nullptr) {
    return refuse(__func__, "there is no such communicator, or no place for its state");
  }
  *state = comm->poll();
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr) {
    return refuse(__func__, "there is no such communicator");
  }
  const ncclResult_t ready = comm->check_ready();
  if (ready != ncclSuccess) {
    return ready;
  }
  return comm->start([comm = comm.get()] { return comm->finalize(); }, !comm->is_blocking());
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (handle == nullptr) {
    return ncclSuccess;
  }
  const Comm comm = find_comm(handle);
  if (comm == nullptr) {
    return refuse(__func__, "there is no such communicator");
  }
  comm->join_job();
  if (!comm->is_finalized()) {
    comm->finalize();
  }
  comm->leave();
  remove_comm(comm);
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (handle == nullptr) {
    return ncclSuccess;
  }
  const Comm comm = find_comm(handle);
  if (comm == nullptr) {
    return refuse(__func__, "there is no such communicator");
  }
  comm->abort();
  remove_comm(comm);
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || count == nullptr) {
    return refuse(__func__, "there is no such communicator");
  }
  *count = comm->place().ranks;
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || rank == nullptr) {
    return refuse(__func__, "there is no such communicator");
  }
  *rank = comm->place().rank;
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || device == nullptr) {
    return refuse(__func__, "there is no such communicator");
  }
  *device = comm->place().device;
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess
             ? ncclSuccess
             : refuse(__func__, "no memory on the device", ncclUnhandledCudaError);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess
             ? ncclSuccess
             : refuse(__func__, "this was not allocated", ncclUnhandledCudaError);
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t handle, void* memory,
                                                          size_t bytes, void** token) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || memory == nullptr || bytes == 0 || token == nullptr) {
    return refuse(__func__, "there is no such communicator, or no memory");
  }
  *token = comm->add_registration(memory);
  return ncclSuccess;
}

extern "C" FAKE_CUDA_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* token) {
  const Comm comm = find_comm(handle);
  if (comm == nullptr || !comm->remove_registration(token)) {
    return refuse(__func__, "there is no such communicator or registration");
  }
  return ncclSuccess;
}
