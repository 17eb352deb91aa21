# An MPI library, with mpi.h, for tests and benchmarks that call it themselves. lockstep's own libraries take the one that
# they find when ranks start (collectives/mpi/find_mpi.h).
find_package(MPI REQUIRED COMPONENTS C)
foreach(_mpi IN LISTS MPI_C_LIBRARIES)
  if(NOT _mpi MATCHES "/libmp[a-z]*\\.so")
    continue()
  endif()
  file(REAL_PATH "${_mpi}" _ours)
  if(LibTorch_MPI_LIBRARY)
    file(REAL_PATH "${LibTorch_MPI_LIBRARY}" _theirs)
    if(NOT _ours STREQUAL _theirs)
      message(FATAL_ERROR "LibTorch was built with the MPI of ${_theirs}, and the tests of this build would take ${_ours}: "
        "two in one process do not work. Name LibTorch's: -DMPI_HOME=DIR, where DIR has bin/mpicc")
    endif()
  endif()
  # Programs of the build tree find this one before the system's.
  get_filename_component(_ours "${_ours}" DIRECTORY)
  if(NOT _ours IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    list(APPEND CMAKE_BUILD_RPATH "${_ours}")
  endif()
endforeach()
# Only MPI's C interface is used; without these its headers ask for the C++ library too.
set_property(TARGET MPI::MPI_C APPEND PROPERTY
  INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
