#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep {

/// A communicator of a program that uses MPI itself. Converts from MPI_Comm, so that a program
/// passes its MPI_Comm to lockstep although no header of lockstep includes mpi.h:
///   lockstep::Runtime runtime(comm, lockstep::RuntimeOptions().seed(1));
///
/// Holds a copy of the handle. The communicator stays the program's: lockstep duplicates it, sends
/// no message on it, and never frees it.
/// Threads: any. Errors: none here. The first user of the handle throws Error (code usage) if the
/// handle is not one of the MPI library of this process.
class MpiCommHandle {
 public:
  /// From an MPI_Comm: a pointer to a class in Open MPI, an int in MPICH and its relatives.
  template <typename Comm,
            typename = std::enable_if_t<std::is_same_v<Comm, int> ||
                                        (std::is_pointer_v<Comm> &&
                                         std::is_class_v<std::remove_pointer_t<Comm>>)>>
  MpiCommHandle(Comm comm) : bytes_(sizeof(Comm)) {  // NOLINT(google-explicit-constructor)
    static_assert(sizeof(Comm) <= sizeof(bits_));
    std::memcpy(&bits_, &comm, sizeof(Comm));
  }
  /// From the handle of a Fortran program: an MPI_Fint, or comm%MPI_VAL of the module mpi_f08.
  static MpiCommHandle from_fortran(int handle) {
    MpiCommHandle result(handle);
    result.is_fortran_ = true;
    return result;
  }

  uint64_t bits() const { return bits_; }
  size_t bytes() const { return bytes_; }
  bool is_fortran() const { return is_fortran_; }

 private:
  uint64_t bits_ = 0;
  size_t bytes_;
  bool is_fortran_ = false;
};

}  // namespace lockstep
