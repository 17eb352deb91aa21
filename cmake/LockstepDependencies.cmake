# What lockstep's libraries link to: found in the same way by its own build and, after install, by
# the projects that use it.
find_package(LibTorch 2.11 REQUIRED)
find_package(Threads REQUIRED)
# A package may bring these four (lockstepConfig.cmake): then neither they nor pkg-config are looked for.
find_package(PkgConfig)
if(NOT TARGET ZLIB::ZLIB)
  find_package(ZLIB REQUIRED)
endif()
if(NOT TARGET hwy::hwy)
  find_package(hwy QUIET)
endif()
if(NOT TARGET hwy::hwy)  # Highway of Ubuntu 22.04 has no CMake package
  pkg_check_modules(hwy REQUIRED IMPORTED_TARGET GLOBAL libhwy)
  add_library(hwy::hwy ALIAS PkgConfig::hwy)
endif()
if(NOT TARGET PkgConfig::xxhash)
  pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET GLOBAL libxxhash)
  # Programs need no such library where they run, if there is a static one.
  string(REGEX REPLACE "[.]so$" ".a" _static "${xxhash_LINK_LIBRARIES}")
  if(EXISTS "${_static}" AND NOT BUILD_SHARED_LIBS)
    set_property(TARGET PkgConfig::xxhash PROPERTY INTERFACE_LINK_LIBRARIES "${_static}")
  endif()
endif()
if(NOT TARGET PkgConfig::sodium)
  pkg_check_modules(sodium REQUIRED IMPORTED_TARGET GLOBAL libsodium)
endif()
# Readers of datasets/ that need one of these refuse by name where it is missing.
foreach(_optional IN ITEMS libjpeg libpng libarchive)
  if(PkgConfig_FOUND AND NOT TARGET PkgConfig::${_optional})
    pkg_check_modules(${_optional} QUIET IMPORTED_TARGET GLOBAL ${_optional})
  endif()
endforeach()
