#pragma once

#include <cstddef>

namespace lockstep::detail {

/// What a compiler takes from the mpi.h of Open MPI 3 to 5 (libmpi.so.40): types and constants. Its
/// predefined handles are addresses of objects in the library; `find` returns them by name.
struct OpenMpiAbi {
  using Comm = struct ompi_communicator_t*;
  using Datatype = struct ompi_datatype_t*;
  using Errhandler = struct ompi_errhandler_t*;
  using Group = struct ompi_group_t*;
  using Info = struct ompi_info_t*;
  using Request = struct ompi_request_t*;
  struct Status {
    int source;
    int tag;
    int error;
    int cancelled;
    size_t count;
  };
  static constexpr int kAnySource = -1;
  static constexpr int kCommTypeShared = 0;
  static constexpr bool kFortranHandlesAreC = false;
  static Status* ignore_statuses() { return nullptr; }

  template <typename Find>
  explicit OpenMpiAbi(const Find& find)
      : comm_world(static_cast<Comm>(find("ompi_mpi_comm_world"))),
        comm_null(static_cast<Comm>(find("ompi_mpi_comm_null"))),
        byte(static_cast<Datatype>(find("ompi_mpi_byte"))),
        errors_return(static_cast<Errhandler>(find("ompi_mpi_errors_return"))),
        info_null(static_cast<Info>(find("ompi_mpi_info_null"))),
        request_null(static_cast<Request>(find("ompi_request_null"))) {}

  Comm comm_world;
  Comm comm_null;
  Datatype byte;
  Errhandler errors_return;
  Info info_null;
  Request request_null;
};

/// The same of MPICH and its relatives (libmpi.so.12: Intel MPI, MVAPICH, Cray MPICH), which keep
/// these numbers by agreement (MPICH ABI Compatibility Initiative).
struct MpichAbi {
  using Comm = int;
  using Datatype = int;
  using Errhandler = int;
  using Group = int;
  using Info = int;
  using Request = int;
  struct Status {
    int count_low;
    int count_high_and_cancelled;
    int source;
    int tag;
    int error;
  };
  static constexpr int kAnySource = -2;
  static constexpr int kCommTypeShared = 1;
  static constexpr bool kFortranHandlesAreC = true;
  static Status* ignore_statuses() { return reinterpret_cast<Status*>(1); }

  template <typename Find>
  explicit MpichAbi(const Find& /*find*/) {}

  Comm comm_world = 0x44000000;
  Comm comm_null = 0x04000000;
  Datatype byte = 0x4c00010d;
  Errhandler errors_return = 0x54000001;
  Info info_null = 0x1c000000;
  Request request_null = 0x2c000000;
};

/// The same in both.
struct MpiConstants {
  static constexpr int kSuccess = 0;
  static constexpr int kAnyTag = -1;
  static constexpr int kUndefined = -32766;
  static constexpr int kThreadSingle = 0;
  static constexpr int kThreadFunneled = 1;
  static constexpr int kThreadSerialized = 2;
  static constexpr int kThreadMultiple = 3;
  static constexpr int kLongestText = 8192;  // of an error (512) and of a version
};

}  // namespace lockstep::detail
