# What lockstep's libraries link to: found in the same way by its own build and, after install, by
# the projects that use it.
find_package(LibTorch 2.11 REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(hwy REQUIRED)
find_package(PkgConfig REQUIRED)
if(NOT TARGET PkgConfig::xxhash)
  pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET GLOBAL libxxhash)
endif()
# Readers of datasets/ that need one of these refuse by name where it is missing.
foreach(_optional IN ITEMS libjpeg libpng libarchive)
  if(NOT TARGET PkgConfig::${_optional})
    pkg_check_modules(${_optional} QUIET IMPORTED_TARGET GLOBAL ${_optional})
  endif()
endforeach()

# Only MPI's C interface is used; without these its headers ask for the C++ library too.
set_property(TARGET MPI::MPI_C APPEND PROPERTY
  INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
