#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/loaded_libraries.h>
#include <lockstep/collectives/impl/nccl_api.h>
#include <nccl.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

NcclStatus status_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return NcclStatus::success;
    case ncclInProgress:
      return NcclStatus::in_progress;
    case ncclUnhandledCudaError:
      return NcclStatus::cuda_error;
    case ncclSystemError:
      return NcclStatus::system_error;
    case ncclInternalError:
      return NcclStatus::internal_error;
    case ncclInvalidArgument:
      return NcclStatus::invalid_argument;
    case ncclInvalidUsage:
      return NcclStatus::invalid_usage;
    case ncclRemoteError:
      return NcclStatus::remote_error;
    default:
      return NcclStatus::unknown;
  }
}

ncclDataType_t type_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Char:
      return ncclInt8;
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return ncclUint8;
    case c10::ScalarType::Int:
      return ncclInt32;
    case c10::ScalarType::Long:
      return ncclInt64;
    case c10::ScalarType::Half:
      return ncclFloat16;
    case c10::ScalarType::BFloat16:
      return ncclBfloat16;
    case c10::ScalarType::Float:
      return ncclFloat32;
    case c10::ScalarType::Double:
      return ncclFloat64;
    default:
      throw Error(c10::str("NCCL has no type for ", dtype));
  }
}

/// Non-blocking (NcclComm says why). A communicator and its parts share NCCL's buffers: their
/// collectives run one after the other on one lane, and a failure of one ends all.
ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  return config;
}

ncclComm_t comm_of(NcclApi::Handle handle) {
  return static_cast<ncclComm_t>(handle);
}
cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

/// A function of the loaded library, with its type from the header.
template <typename Function>
Function* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  LOCKSTEP_CHECK_CODE(found != nullptr, ExitCode::environment, "libnccl.so.2 has no ", name,
                      ": it is too old, NCCL ", nccl_version_text(NcclApi::kOldest),
                      " or newer is needed");
  return reinterpret_cast<Function*>(found);
}

#define LOCKSTEP_NCCL(function) \
  decltype(::function)* const function##_ = symbol<decltype(::function)>(library_, #function)

class NcclLibrary final : public NcclApi {
 public:
  explicit NcclLibrary(void* library) : library_(library) {}

  int version() override {
    int version = 0;
    ncclGetVersion_(&version);
    return version;
  }

  NcclStatus make_id(Id* id) override {
    static_assert(sizeof(Id) == sizeof(ncclUniqueId));
    return status_of(ncclGetUniqueId_(reinterpret_cast<ncclUniqueId*>(id)));
  }

  bool takes_several_ids() const override { return init_scalable_ != nullptr; }
  NcclStatus init(Handle* comm, int ranks, const std::vector<Id>& ids, int rank) override {
    std::vector<ncclUniqueId> unique(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      std::copy(ids[i].begin(), ids[i].end(), unique[i].internal);
    }
    ncclConfig_t config = configuration();
    auto* made = reinterpret_cast<ncclComm_t*>(comm);
    if (unique.size() > 1) {
      return status_of(init_scalable_(made, ranks, rank, static_cast<int>(unique.size()),
                                      unique.data(), &config));
    }
    return status_of(ncclCommInitRankConfig_(made, ranks, unique[0], rank, &config));
  }

  NcclStatus split(Handle comm, int color, int key, Handle* part) override {
    ncclConfig_t config = configuration();
    return status_of(ncclCommSplit_(comm_of(comm), color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                                    reinterpret_cast<ncclComm_t*>(part), &config));
  }

  NcclStatus poll(Handle comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError_(comm_of(comm), &state);
    return status_of(asked == ncclSuccess ? state : asked);
  }

  NcclStatus finalize(Handle comm) override { return status_of(ncclCommFinalize_(comm_of(comm))); }
  NcclStatus destroy(Handle comm) override { return status_of(ncclCommDestroy_(comm_of(comm))); }
  NcclStatus abort(Handle comm) override { return status_of(ncclCommAbort_(comm_of(comm))); }
  std::string last_error(Handle comm) override {
    const char* text = ncclGetLastError_(comm_of(comm));
    return text == nullptr ? "" : text;
  }

  int plain_operator(Sum sum) override {
    return sum == Sum::max ? ncclMax : sum == Sum::min ? ncclMin : ncclSum;
  }

  NcclStatus make_premultiplied_sum(Handle comm, c10::ScalarType dtype, double factor,
                                    int* op) override {
    Scalar scalar;
    scalar.set(dtype, factor);
    auto made = ncclSum;
    const ncclResult_t result = ncclRedOpCreatePreMulSum_(&made, &scalar, type_of(dtype),
                                                          ncclScalarHostImmediate, comm_of(comm));
    *op = made;
    return status_of(result);
  }

  NcclStatus all_reduce(const void* input, void* output, size_t count, c10::ScalarType dtype,
                        int op, Handle comm, void* stream) override {
    return status_of(ncclAllReduce_(input, output, count, type_of(dtype),
                                    static_cast<ncclRedOp_t>(op), comm_of(comm),
                                    stream_of(stream)));
  }
  NcclStatus reduce_scatter(const void* input, void* output, size_t count, c10::ScalarType dtype,
                            int op, Handle comm, void* stream) override {
    return status_of(ncclReduceScatter_(input, output, count, type_of(dtype),
                                        static_cast<ncclRedOp_t>(op), comm_of(comm),
                                        stream_of(stream)));
  }
  NcclStatus all_gather(const void* input, void* output, size_t bytes, Handle comm,
                        void* stream) override {
    return status_of(
        ncclAllGather_(input, output, bytes, ncclUint8, comm_of(comm), stream_of(stream)));
  }
  NcclStatus broadcast(void* buffer, size_t bytes, int root, Handle comm, void* stream) override {
    return status_of(
        ncclBroadcast_(buffer, buffer, bytes, ncclUint8, root, comm_of(comm), stream_of(stream)));
  }

  NcclStatus allocate(void** memory, size_t bytes) override {
    return status_of(ncclMemAlloc_(memory, bytes));
  }
  NcclStatus release(void* memory) override { return status_of(ncclMemFree_(memory)); }
  NcclStatus register_memory(Handle comm, void* memory, size_t bytes, void** token) override {
    return status_of(ncclCommRegister_(comm_of(comm), memory, bytes, token));
  }
  NcclStatus deregister_memory(Handle comm, void* token) override {
    return status_of(ncclCommDeregister_(comm_of(comm), token));
  }

 private:
  /// A number in the dtype of the elements that it multiplies.
  union Scalar {
    float fp32;
    double fp64;
    c10::Half half;
    c10::BFloat16 brain;

    Scalar() : fp64(0) {}
    void set(c10::ScalarType dtype, double value) {
      switch (dtype) {
        case c10::ScalarType::Float:
          fp32 = static_cast<float>(value);
          return;
        case c10::ScalarType::Double:
          fp64 = value;
          return;
        case c10::ScalarType::Half:
          half = c10::Half(static_cast<float>(value));
          return;
        case c10::ScalarType::BFloat16:
          brain = c10::BFloat16(static_cast<float>(value));
          return;
        default:
          throw Error(c10::str("NCCL cannot average ", dtype));
      }
    }
  };

  /// ncclCommInitRankScalable: older headers do not have it.
  using InitScalable = ncclResult_t(ncclComm_t*, int ranks, int rank, int ids, ncclUniqueId*,
                                    ncclConfig_t*);

  void* library_;
  InitScalable* const init_scalable_ =
      reinterpret_cast<InitScalable*>(dlsym(library_, "ncclCommInitRankScalable"));
  LOCKSTEP_NCCL(ncclGetVersion);
  LOCKSTEP_NCCL(ncclGetUniqueId);
  LOCKSTEP_NCCL(ncclCommInitRankConfig);
  LOCKSTEP_NCCL(ncclCommSplit);
  LOCKSTEP_NCCL(ncclCommGetAsyncError);
  LOCKSTEP_NCCL(ncclCommFinalize);
  LOCKSTEP_NCCL(ncclCommDestroy);
  LOCKSTEP_NCCL(ncclCommAbort);
  LOCKSTEP_NCCL(ncclGetLastError);
  LOCKSTEP_NCCL(ncclRedOpCreatePreMulSum);
  LOCKSTEP_NCCL(ncclAllReduce);
  LOCKSTEP_NCCL(ncclReduceScatter);
  LOCKSTEP_NCCL(ncclAllGather);
  LOCKSTEP_NCCL(ncclBroadcast);
  LOCKSTEP_NCCL(ncclMemAlloc);
  LOCKSTEP_NCCL(ncclMemFree);
  LOCKSTEP_NCCL(ncclCommRegister);
  LOCKSTEP_NCCL(ncclCommDeregister);
};

#undef LOCKSTEP_NCCL

}  // namespace

bool nccl_available() {
  return true;
}

std::shared_ptr<NcclApi> load_nccl() {
  const std::string path = nccl_file(loaded_libraries());
  void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  LOCKSTEP_CHECK_CODE(library != nullptr, ExitCode::environment,
                      c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)
                          ? "this LibTorch for CUDA has no NCCL: it was built with USE_NCCL=0"
                          : "this LibTorch is for CPUs",
                      "; take a LibTorch that has NCCL, or use the staged transport");
  auto nccl = std::make_shared<NcclLibrary>(library);
  const int version = nccl->version();
  LOCKSTEP_CHECK_CODE(version >= NCCL_VERSION_CODE && version >= NcclApi::kOldest,
                      ExitCode::environment, path, " is NCCL ", nccl_version_text(version),
                      ", but lockstep was built with ", nccl_version_text(NCCL_VERSION_CODE),
                      " and needs that or a newer one");
  return nccl;
}

}  // namespace lockstep::detail
