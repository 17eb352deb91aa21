#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::detail {

enum class NcclStatus : uint8_t {
  success,
  in_progress,
  cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  unknown,
};

/// "remote error", ...
const char* status_name(NcclStatus status);

/// The NCCL functions that lockstep calls, without NCCL's headers. Hides differences of versions.
///
/// Threads: any, but one at a time for each communicator, also in poll() and abort(). Communicators
/// are non-blocking: after in_progress, poll() says when the call is done. Streams are
/// cudaStream_t.
class NcclApi {
 public:
  using Handle = void*;
  using Id = std::array<char, 128>;
  /// The oldest version with all of these functions (ncclMemAlloc, ncclCommRegister).
  static constexpr int kOldest = 21903;
  /// The first version in which NCCL_MULTI_RANK_GPU_ENABLE=1 lets ranks share a GPU.
  static constexpr int kSharesGpu = 23003;

  enum class Sum : int { plain, max, min };

  virtual ~NcclApi() = default;

  /// The version of the loaded library: 22809 for 2.28.9.
  virtual int version() = 0;
  virtual NcclStatus make_id(Id* id) = 0;
  /// Whether init() takes several ids (ncclCommInitRankScalable, since 2.23).
  virtual bool takes_several_ids() const = 0;
  /// `ids`: the same on every rank, made by ranks far apart.
  virtual NcclStatus init(Handle* comm, int ranks, const std::vector<Id>& ids, int rank) = 0;
  /// color < 0: the rank takes part and gets null.
  virtual NcclStatus split(Handle comm, int color, int key, Handle* part) = 0;
  /// The state of a communicator: in_progress, success, or an error.
  virtual NcclStatus poll(Handle comm) = 0;
  virtual NcclStatus finalize(Handle comm) = 0;
  virtual NcclStatus destroy(Handle comm) = 0;
  virtual NcclStatus abort(Handle comm) = 0;
  /// NCCL's text for its last error.
  virtual std::string last_error(Handle comm) = 0;

  /// The number of a built-in operator. Other operators belong to a communicator.
  virtual int plain_operator(Sum sum) = 0;
  virtual NcclStatus make_premultiplied_sum(Handle comm, c10::ScalarType dtype, double factor,
                                            int* op) = 0;
  virtual NcclStatus all_reduce(const void* input, void* output, size_t count,
                                c10::ScalarType dtype, int op, Handle comm, void* stream) = 0;
  /// `count` elements in output, ranks * count in input.
  virtual NcclStatus reduce_scatter(const void* input, void* output, size_t count,
                                    c10::ScalarType dtype, int op, Handle comm, void* stream) = 0;
  /// `bytes` in input, ranks * bytes in output.
  virtual NcclStatus all_gather(const void* input, void* output, size_t bytes, Handle comm,
                                void* stream) = 0;
  virtual NcclStatus broadcast(void* buffer, size_t bytes, int root, Handle comm, void* stream) = 0;

  /// Device memory in which NCCL is fastest.
  virtual NcclStatus allocate(void** memory, size_t bytes) = 0;
  virtual NcclStatus release(void* memory) = 0;
  virtual NcclStatus register_memory(Handle comm, void* memory, size_t bytes, void** token) = 0;
  virtual NcclStatus deregister_memory(Handle comm, void* token) = 0;
};

/// Whether NCCL reduces this dtype: all of Communicator's except int16; bool as uint8.
bool nccl_reduces(c10::ScalarType dtype);

/// "2.28.9" for 22809.
std::string nccl_version_text(int version);

/// Opens the NCCL that LibTorch has loaded into this process. Throws Error (code
/// environment) if there is none or there are two, and if it is older than kOldest or than the
/// header that lockstep was built with.
std::shared_ptr<NcclApi> load_nccl();

/// Whether this build has the NCCL transport.
bool nccl_available();

}  // namespace lockstep::detail
