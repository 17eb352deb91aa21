#pragma once

#include <dlfcn.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/mpi/mpi_library.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::detail {

/// MpiLibrary for one binary interface (mpi_abi.h): calls the functions of a loaded library.
template <typename Abi>
class MpiFunctions final : public MpiLibrary {
  using Comm = typename Abi::Comm;
  using Datatype = typename Abi::Datatype;
  using Errhandler = typename Abi::Errhandler;
  using Group = typename Abi::Group;
  using Info = typename Abi::Info;
  using Request = typename Abi::Request;
  using Status = typename Abi::Status;

 public:
  /// `library`: of dlopen. A tool that was loaded before MPI and has a function of the same name,
  /// such as a profiler, gets the calls.
  explicit MpiFunctions(void* library) : library_(library) {}

  std::string version() const override {
    std::array<char, MpiConstants::kLongestText> text{};
    int length = 0;
    get_library_version_(text.data(), &length);
    return text.data();  // the length of Open MPI counts the end
  }
  std::string error_text(int code) const override {
    std::array<char, MpiConstants::kLongestText> text{};
    int length = 0;
    error_string_(code, text.data(), &length);
    return text.data();
  }
  int initialized(int* flag) const override { return initialized_(flag); }
  int finalized(int* flag) const override { return finalized_(flag); }
  int init_thread(int wanted, int* provided) const override {
    return init_thread_(nullptr, nullptr, wanted, provided);
  }
  int query_thread(int* provided) const override { return query_thread_(provided); }
  int finalize() const override { return finalize_(); }

  MpiHandle world() const override { return neutral(abi_.comm_world); }
  size_t comm_bytes() const override { return sizeof(Comm); }
  MpiHandle comm_of(uint64_t bits) const override { return comm_out(own<Comm>(bits)); }
  MpiHandle comm_of_fortran(int handle) const override {
    if constexpr (Abi::kFortranHandlesAreC) {
      return comm_out(handle);
    } else {
      auto* const from_fortran = reinterpret_cast<Comm (*)(int)>(find("MPI_Comm_f2c"));
      return comm_out(from_fortran(handle));
    }
  }
  int comm_dup(MpiHandle comm, MpiHandle* copy) const override {
    Comm made = abi_.comm_null;
    const int code = comm_dup_(comm_in(comm), &made);
    *copy = comm_out(made);
    return code;
  }
  int comm_split(MpiHandle comm, int color, int key, MpiHandle* part) const override {
    Comm made = abi_.comm_null;
    const int code = comm_split_(comm_in(comm), color, key, &made);
    *part = comm_out(made);
    return code;
  }
  int comm_split_shared(MpiHandle comm, int key, MpiHandle* part) const override {
    Comm made = abi_.comm_null;
    const int code =
        comm_split_type_(comm_in(comm), Abi::kCommTypeShared, key, abi_.info_null, &made);
    *part = comm_out(made);
    return code;
  }
  int comm_free(MpiHandle comm) const override {
    Comm freed = comm_in(comm);
    return comm_free_(&freed);
  }
  int comm_rank(MpiHandle comm, int* rank) const override {
    return comm_rank_(comm_in(comm), rank);
  }
  int comm_size(MpiHandle comm, int* size) const override {
    return comm_size_(comm_in(comm), size);
  }
  int world_ranks(MpiHandle comm, std::vector<int>* ranks) const override {
    int size = 0;
    Group own{};
    Group all{};
    int code = comm_size_(comm_in(comm), &size);
    if (code == MpiConstants::kSuccess) {
      code = comm_group_(comm_in(comm), &own);
    }
    if (code == MpiConstants::kSuccess) {
      code = comm_group_(abi_.comm_world, &all);
    }
    if (code != MpiConstants::kSuccess) {
      return code;
    }
    std::vector<int> numbers(static_cast<size_t>(size));
    std::iota(numbers.begin(), numbers.end(), 0);
    ranks->resize(numbers.size());
    code = group_translate_ranks_(own, size, numbers.data(), all, ranks->data());
    group_free_(&own);
    group_free_(&all);
    return code;
  }
  int get_errhandler(MpiHandle comm, MpiHandle* handler) const override {
    Errhandler found{};
    const int code = comm_get_errhandler_(comm_in(comm), &found);
    *handler = neutral(found);
    return code;
  }
  int set_errhandler(MpiHandle comm, MpiHandle handler) const override {
    return comm_set_errhandler_(comm_in(comm), own<Errhandler>(handler));
  }
  int errhandler_free(MpiHandle handler) const override {
    auto freed = own<Errhandler>(handler);
    return errhandler_free_(&freed);
  }
  MpiHandle errors_return() const override { return neutral(abi_.errors_return); }

  int isend(const void* from, int bytes, int to, int tag, MpiHandle comm,
            MpiHandle* request) const override {
    return started(request, isend_, from, bytes, abi_.byte, to, tag, comm_in(comm));
  }
  int issend(const void* from, int bytes, int to, int tag, MpiHandle comm,
             MpiHandle* request) const override {
    return started(request, issend_, from, bytes, abi_.byte, to, tag, comm_in(comm));
  }
  int irecv(void* to, int bytes, int from, int tag, MpiHandle comm,
            MpiHandle* request) const override {
    return started(request, irecv_, to, bytes, abi_.byte, from, tag, comm_in(comm));
  }
  int send(const void* from, int bytes, int to, int tag, MpiHandle comm) const override {
    return send_(from, bytes, abi_.byte, to, tag, comm_in(comm));
  }
  int recv(void* to, int bytes, int from, int tag, MpiHandle comm) const override {
    Status status;
    return recv_(to, bytes, abi_.byte, from, tag, comm_in(comm), &status);
  }
  int iprobe(int source, MpiHandle comm, int* found, MpiEnvelope* message) const override {
    Status status;
    const int code =
        iprobe_(source_in(source), MpiConstants::kAnyTag, comm_in(comm), found, &status);
    return code == MpiConstants::kSuccess && *found != 0 ? read(status, message) : code;
  }
  int probe(int source, MpiHandle comm, MpiEnvelope* message) const override {
    Status status;
    const int code = probe_(source_in(source), MpiConstants::kAnyTag, comm_in(comm), &status);
    return code == MpiConstants::kSuccess ? read(status, message) : code;
  }
  int test(MpiHandle* request, int* complete) const override {
    Status status;
    Request tested = request_in(*request);
    const int code = test_(&tested, complete, &status);
    *request = request_out(tested);
    return code;
  }
  int test_all(std::vector<MpiHandle>* requests, int* complete) const override {
    std::vector<Request> tested(requests->size());
    std::transform(requests->begin(), requests->end(), tested.begin(),
                   [this](MpiHandle request) { return request_in(request); });
    const int code =
        testall_(static_cast<int>(tested.size()), tested.data(), complete, Abi::ignore_statuses());
    std::transform(tested.begin(), tested.end(), requests->begin(),
                   [this](Request request) { return request_out(request); });
    return code;
  }
  int wait(MpiHandle* request) const override {
    Status status;
    Request awaited = request_in(*request);
    const int code = wait_(&awaited, &status);
    *request = request_out(awaited);
    return code;
  }

  int barrier(MpiHandle comm) const override { return barrier_(comm_in(comm)); }
  int bcast(void* data, int bytes, int root, MpiHandle comm) const override {
    return bcast_(data, bytes, abi_.byte, root, comm_in(comm));
  }
  int allgather(const void* own, int bytes, void* all, MpiHandle comm) const override {
    return allgather_(own, bytes, abi_.byte, all, bytes, abi_.byte, comm_in(comm));
  }
  int allgatherv(const void* own, int bytes, void* all, const int* sizes, const int* begins,
                 MpiHandle comm) const override {
    return allgatherv_(own, bytes, abi_.byte, all, sizes, begins, abi_.byte, comm_in(comm));
  }
  int ibarrier(MpiHandle comm, MpiHandle* request) const override {
    return started(request, ibarrier_, comm_in(comm));
  }
  int ibcast(void* data, int bytes, int root, MpiHandle comm, MpiHandle* request) const override {
    return started(request, ibcast_, data, bytes, abi_.byte, root, comm_in(comm));
  }
  int iallgather(const void* own, int bytes, void* all, MpiHandle comm,
                 MpiHandle* request) const override {
    return started(request, iallgather_, own, bytes, abi_.byte, all, bytes, abi_.byte,
                   comm_in(comm));
  }

 private:
  /// A function of the library.
  template <typename... Arguments>
  class Function {
   public:
    Function(void* library, const char* name)
        : address_(reinterpret_cast<int (*)(Arguments...)>(find_in(library, name))) {}
    int operator()(Arguments... arguments) const { return address_(arguments...); }

   private:
    int (*address_)(Arguments...);
  };

  static void* find_in(void* library, const char* name) {
    void* address = dlsym(RTLD_DEFAULT, name);
    address = address != nullptr ? address : dlsym(library, name);
    LOCKSTEP_CHECK_CODE(address != nullptr, ExitCode::environment,
                        "the MPI library of this process has no ", name,
                        "; lockstep needs MPI 3.0 or newer");
    return address;
  }
  void* find(const char* name) const { return find_in(library_, name); }

  template <typename Handle>
  static MpiHandle neutral(Handle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<MpiHandle>(handle);
    } else {
      return static_cast<unsigned>(handle);
    }
  }
  template <typename Handle>
  static Handle own(MpiHandle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<Handle>(handle);  // NOLINT(performance-no-int-to-ptr)
    } else {
      return static_cast<Handle>(static_cast<unsigned>(handle));
    }
  }
  MpiHandle comm_out(Comm comm) const { return comm == abi_.comm_null ? 0 : neutral(comm); }
  Comm comm_in(MpiHandle comm) const { return comm == 0 ? abi_.comm_null : own<Comm>(comm); }
  MpiHandle request_out(Request request) const {
    return request == abi_.request_null ? 0 : neutral(request);
  }
  Request request_in(MpiHandle request) const {
    return request == 0 ? abi_.request_null : own<Request>(request);
  }
  static int source_in(int source) { return source == kAnyMpiSource ? Abi::kAnySource : source; }

  /// Calls a function that returns its request last.
  template <typename Start, typename... Arguments>
  int started(MpiHandle* request, const Start& start, Arguments... arguments) const {
    Request made = abi_.request_null;
    const int code = start(arguments..., &made);
    *request = request_out(made);
    return code;
  }
  int read(const Status& status, MpiEnvelope* message) const {
    message->source = status.source;
    message->tag = status.tag;
    return get_count_(&status, abi_.byte, &message->bytes);
  }

  void* const library_;
  const Abi abi_{[this](const char* name) { return find(name); }};
  const Function<char*, int*> get_library_version_{library_, "MPI_Get_library_version"};
  const Function<int, char*, int*> error_string_{library_, "MPI_Error_string"};
  const Function<int*> initialized_{library_, "MPI_Initialized"};
  const Function<int*> finalized_{library_, "MPI_Finalized"};
  const Function<int*, char***, int, int*> init_thread_{library_, "MPI_Init_thread"};
  const Function<int*> query_thread_{library_, "MPI_Query_thread"};
  const Function<> finalize_{library_, "MPI_Finalize"};
  const Function<Comm, Comm*> comm_dup_{library_, "MPI_Comm_dup"};
  const Function<Comm, int, int, Comm*> comm_split_{library_, "MPI_Comm_split"};
  const Function<Comm, int, int, Info, Comm*> comm_split_type_{library_, "MPI_Comm_split_type"};
  const Function<Comm*> comm_free_{library_, "MPI_Comm_free"};
  const Function<Comm, int*> comm_rank_{library_, "MPI_Comm_rank"};
  const Function<Comm, int*> comm_size_{library_, "MPI_Comm_size"};
  const Function<Comm, Group*> comm_group_{library_, "MPI_Comm_group"};
  const Function<Group, int, const int*, Group, int*> group_translate_ranks_{
      library_, "MPI_Group_translate_ranks"};
  const Function<Group*> group_free_{library_, "MPI_Group_free"};
  const Function<Comm, Errhandler*> comm_get_errhandler_{library_, "MPI_Comm_get_errhandler"};
  const Function<Comm, Errhandler> comm_set_errhandler_{library_, "MPI_Comm_set_errhandler"};
  const Function<Errhandler*> errhandler_free_{library_, "MPI_Errhandler_free"};
  using Send = Function<const void*, int, Datatype, int, int, Comm, Request*>;
  const Send isend_{library_, "MPI_Isend"};
  const Send issend_{library_, "MPI_Issend"};
  const Function<void*, int, Datatype, int, int, Comm, Request*> irecv_{library_, "MPI_Irecv"};
  const Function<const void*, int, Datatype, int, int, Comm> send_{library_, "MPI_Send"};
  const Function<void*, int, Datatype, int, int, Comm, Status*> recv_{library_, "MPI_Recv"};
  const Function<int, int, Comm, int*, Status*> iprobe_{library_, "MPI_Iprobe"};
  const Function<int, int, Comm, Status*> probe_{library_, "MPI_Probe"};
  const Function<const Status*, Datatype, int*> get_count_{library_, "MPI_Get_count"};
  const Function<Request*, int*, Status*> test_{library_, "MPI_Test"};
  const Function<int, Request*, int*, Status*> testall_{library_, "MPI_Testall"};
  const Function<Request*, Status*> wait_{library_, "MPI_Wait"};
  const Function<Comm> barrier_{library_, "MPI_Barrier"};
  const Function<void*, int, Datatype, int, Comm> bcast_{library_, "MPI_Bcast"};
  const Function<const void*, int, Datatype, void*, int, Datatype, Comm> allgather_{
      library_, "MPI_Allgather"};
  const Function<const void*, int, Datatype, void*, const int*, const int*, Datatype, Comm>
      allgatherv_{library_, "MPI_Allgatherv"};
  const Function<Comm, Request*> ibarrier_{library_, "MPI_Ibarrier"};
  const Function<void*, int, Datatype, int, Comm, Request*> ibcast_{library_, "MPI_Ibcast"};
  const Function<const void*, int, Datatype, void*, int, Datatype, Comm, Request*> iallgather_{
      library_, "MPI_Iallgather"};
};

}  // namespace lockstep::detail
