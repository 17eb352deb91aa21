# cmake --install: libraries, headers (public ones and those of impl/) under include/lockstep/, the lockstep command,
# and what find_package(lockstep) and pkg-config read. cpack makes a .tar.gz and a .deb of it, scripts/wheel a wheel.
# Components:
#   lockstep     all that programs need
#   documents    the manual and the sources of the examples
#   here         what names LibTorch's place on this machine; packages for other machines are made without it
#   relocated    not by default: takes this machine's folders out of the run-time paths of what is installed
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")

get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
set(library_targets)
foreach(library IN LISTS libraries)
  list(APPEND library_targets lockstep_${library})
  get_target_property(folder lockstep_${library} LOCKSTEP_FOLDER)
  get_target_property(include_as lockstep_${library} LOCKSTEP_INCLUDE_AS)
  get_target_property(headers lockstep_${library} LOCKSTEP_PUBLIC_HEADERS)
  list(TRANSFORM headers PREPEND "${PROJECT_SOURCE_DIR}/${folder}/")
  install(FILES ${headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${include_as}")
  # Public headers include some of these.
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/impl")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/impl/"
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder}/impl" FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()
# For a program that has MPI code of its own: without these MPI's header asks for the C++ library too.
target_compile_definitions(lockstep_collectives INTERFACE
  $<INSTALL_INTERFACE:OMPI_SKIP_MPICXX> $<INSTALL_INTERFACE:MPICH_SKIP_MPICXX>)
install(FILES "${PROJECT_SOURCE_DIR}/lockstep.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep")
install(TARGETS lockstep lockstep_runtime ${library_targets} EXPORT lockstepTargets)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${package_dir}")

set(_readers libjpeg libpng libarchive)
foreach(_reader IN LISTS _readers)
  if(NOT TARGET PkgConfig::${_reader})
    list(REMOVE_ITEM _readers ${_reader})
  endif()
endforeach()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
  "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/LockstepDependencies.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION "${package_dir}")

# Read by lockstepConfig.cmake and by the lockstep command: LibTorch's root, then the folders of what it does not find by
# itself, one a line.
list(JOIN LibTorch_CUDA_LIBRARY_DIRS "\n" _place)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/share/lockstep/libtorch" CONTENT "@LibTorch_ROOT@\n@_place@\n" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/share/lockstep/libtorch" DESTINATION "${CMAKE_INSTALL_DATADIR}/lockstep"
  COMPONENT here)

lockstep_installed_run_paths(_relocated RELOCATABLE)
list(JOIN CMAKE_INSTALL_RPATH ":" _installed)
list(JOIN _relocated ":" _relocated)
install(CODE "
  set(tree \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  file(GLOB files \"\${tree}/${CMAKE_INSTALL_BINDIR}/lockstep-*\" \"\${tree}/${CMAKE_INSTALL_LIBDIR}/liblockstep_*.so.*\")
  foreach(file IN LISTS files)
    if(NOT IS_SYMLINK \"\${file}\")
      file(RPATH_CHANGE FILE \"\${file}\" OLD_RPATH \"${_installed}\" NEW_RPATH \"${_relocated}\")
    endif()
  endforeach()" COMPONENT relocated EXCLUDE_FROM_ALL)

# lockstep.pc, for programs that are built without CMake. The order is that of a static link: the
# compiler's C++ library first (see FindLibTorch), lockstep's libraries, LibTorch, the rest.
file(RELATIVE_PATH _up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
set(PKGCONFIG_PREFIX "\${pcfiledir}/${_up}")
string(REGEX REPLACE "/$" "" PKGCONFIG_PREFIX "${PKGCONFIG_PREFIX}")
get_target_property(_features LibTorch::torch INTERFACE_COMPILE_FEATURES)
string(REGEX MATCH "[0-9]+" PKGCONFIG_STANDARD "${_features}")
get_target_property(_includes LibTorch::torch INTERFACE_INCLUDE_DIRECTORIES)
set(_libraries "-Wl,--start-group")
foreach(library IN LISTS libraries)
  string(APPEND _libraries " -llockstep_${library}")
endforeach()
string(APPEND _libraries " -Wl,--end-group")
lockstep_libtorch_folders(_folders)
if(LibTorch_CUDART_LINK)
  list(PREPEND _folders "\${libdir}")
endif()
foreach(_folder IN LISTS _folders)
  string(APPEND _libraries " -L${_folder} -Wl,-rpath,${_folder}")
endforeach()
string(APPEND _libraries " -ltorch -ltorch_cpu -lc10")
if(TARGET LibTorch::cudart)
  get_target_property(_cudart LibTorch::cudart IMPORTED_LOCATION)
  get_filename_component(_cudart "${_cudart}" NAME)
  string(APPEND _libraries " -ltorch_cuda -lc10_cuda -l:${_cudart}")
  if(LibTorch_CUDA_ROOT)
    list(APPEND _includes "${LibTorch_CUDA_ROOT}/include")
  endif()
endif()
get_target_property(_options LibTorch::torch INTERFACE_LINK_OPTIONS)
if(_options MATCHES "--disable-new-dtags")
  string(APPEND _libraries " -Wl,--disable-new-dtags")
endif()
set(_optional_packages)
set(_reader_links)
foreach(_part libjpeg:libjpeg-dev libpng:libpng-dev libarchive:libarchive-dev)
  string(REPLACE ":" ";" _part "${_part}")
  list(GET _part 0 _module)
  if(TARGET PkgConfig::${_module})
    list(GET _part 1 _package)
    string(APPEND _optional_packages ", ${_package}")
    get_target_property(_links PkgConfig::${_module} INTERFACE_LINK_LIBRARIES)
    list(JOIN _links " " _links)
    string(APPEND _reader_links " ${_links}")
  endif()
endforeach()
string(APPEND _libraries "${_reader_links} -lhwy -lxxhash -lsodium -lz -ldl -lpthread")
list(REMOVE_DUPLICATES _includes)
list(TRANSFORM _includes PREPEND "-isystem ")
list(JOIN _includes " " PKGCONFIG_INCLUDES)
set(PKGCONFIG_LIBRARIES "${_libraries}")
get_filename_component(_around "${LibTorch_ROOT}" DIRECTORY)  # site-packages, which has the CUDA wheels too
foreach(_text IN ITEMS PKGCONFIG_INCLUDES PKGCONFIG_LIBRARIES)
  string(REPLACE "${LibTorch_ROOT}" "\${libtorch}" ${_text} "${${_text}}")
  string(REPLACE "${_around}/" "\${libtorch}/../" ${_text} "${${_text}}")
endforeach()
foreach(_component IN ITEMS lockstep here)  # in this order: the second takes the place of the first
  set(PKGCONFIG_LIBTORCH "\${prefix}/../torch")
  if(_component STREQUAL "here")
    set(PKGCONFIG_LIBTORCH "${LibTorch_ROOT}")
  endif()
  set(_file "${PROJECT_BINARY_DIR}/pkgconfig/${_component}/lockstep.pc")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep.pc.in" "${_file}" @ONLY)
  install(FILES "${_file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT ${_component})
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/template" DESTINATION "${CMAKE_INSTALL_DATADIR}/lockstep")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DOCDIR}/manual" COMPONENT documents
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT documents
  PATTERN "__pycache__" EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/CHANGELOG.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT documents)
# The licence, also under the name that Debian looks for.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME copyright)

# All that is installed, for builds without tests, examples and benchmarks.
add_custom_target(lockstep_installed)
add_dependencies(lockstep_installed ${library_targets}
  lockstep_cli lockstep_snapshot_cli lockstep_doctor_cli)
if(TARGET lockstep_fortran)
  add_dependencies(lockstep_installed lockstep_fortran)
endif()

# What scripts/wheel asks: the versions, and the libraries that a machine without packages lacks.
set(_hwy "$<TARGET_FILE:hwy::hwy>")
get_target_property(_type hwy::hwy TYPE)
if(_type STREQUAL "INTERFACE_LIBRARY")
  get_target_property(_hwy hwy::hwy INTERFACE_LINK_LIBRARIES)
endif()
get_target_property(_xxhash PkgConfig::xxhash INTERFACE_LINK_LIBRARIES)
get_target_property(_sodium PkgConfig::sodium INTERFACE_LINK_LIBRARIES)
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/package.json" CONTENT "{
  \"version\": \"${PROJECT_VERSION}\", \"libtorch\": \"${LibTorch_VERSION}\", \"cuda\": \"${LibTorch_CUDA}\",
  \"processor\": \"${CMAKE_SYSTEM_PROCESSOR}\", \"compiler\": \"${CMAKE_CXX_COMPILER}\",
  \"libdir\": \"${CMAKE_INSTALL_LIBDIR}\", \"docdir\": \"${CMAKE_INSTALL_DOCDIR}\",
  \"readers\": \"${_reader_links}\",
  \"brings\": [\"${_hwy}\", \"${_xxhash}\", \"${_sodium}\"]\n}\n")

set(CPACK_INSTALL_CMAKE_PROJECTS)
foreach(_component IN ITEMS lockstep documents relocated)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR}" lockstep ${_component} /)
endforeach()
set(CPACK_PACKAGE_VENDOR "lockstep")
set(CPACK_PACKAGE_CONTACT "the authors of lockstep")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains LibTorch models on many ranks")
set(CPACK_PACKAGE_FILE_NAME "lockstep-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_GENERATOR TGZ DEB)
# LibTorch is a wheel, which no package names; the rest is what a program needs to link.
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "openmpi-bin | mpich, libhwy-dev, libxxhash-dev, libsodium-dev, zlib1g-dev, pkgconf${_optional_packages}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
