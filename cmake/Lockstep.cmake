# The build rules that every library shares. Included by the root and usable by nothing else.
include(GNUInstallDirs)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME lockstep)
include(LockstepRunPaths)

add_library(lockstep_flags INTERFACE)
# GCC 14 warns wrongly of the bounds of vector<bool> in LibTorch's custom_function.h.
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wno-unused-parameter
  "$<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,14>>:-Wno-array-bounds;-Wno-stringop-overflow>")

# a * b + c must not become one instruction on some processors only: equal bits on all.
target_compile_options(lockstep_flags INTERFACE -ffp-contract=off)

# LibTorch's libraries are built with NDEBUG. Without it its headers give at::RecordFunction one more member, which the
# libraries do not set, and check it.
target_compile_definitions(lockstep_flags INTERFACE "$<$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:NDEBUG>")

# No file that is built names a folder of this machine. ccache makes paths below its CCACHE_BASEDIR relative by itself.
if(NOT CCACHE_PROGRAM)
  target_compile_options(lockstep_flags INTERFACE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
endif()
string(FIND "${LibTorch_ROOT}" "${PROJECT_SOURCE_DIR}/" _at)
if(NOT _at EQUAL 0)
  target_compile_options(lockstep_flags INTERFACE "-ffile-prefix-map=${LibTorch_ROOT}/=torch/")
endif()

# What tests and benchmarks link: they may include every header of every library.
add_library(lockstep_internal INTERFACE)
target_compile_definitions(lockstep_internal INTERFACE LOCKSTEP_OWN_LIBRARY=1)
target_link_libraries(lockstep_internal INTERFACE lockstep_flags)

# lockstep_add_library(name SOURCES file... PUBLIC_HEADERS file... [INCLUDE_AS folder]
#                      [DEPENDS library...] [LIBRARIES target...] [PRIVATE_LIBRARIES target...])
#
# Makes lockstep::name from the current folder. The folder of a header says who may include it:
#   the library's folder   everybody; all of them are named in PUBLIC_HEADERS
#   impl/                  lockstep's own libraries: a program that includes one does not compile
#   other sub-folders      this library (and tests and benchmarks)
# <lockstep/INCLUDE_AS/NAME.h> includes a public header; by default INCLUDE_AS is the library's folder.
# <lockstep/FOLDER/impl/NAME.h> and <lockstep/FOLDER/SUB/NAME.h> include the others.
# A library's include directories are folders of the build tree with links to these headers, so a library sees
# those it DEPENDS on and no other: an include against the arrows does not compile.
function(lockstep_add_library name)
  cmake_parse_arguments(LIBRARY "" "INCLUDE_AS"
    "SOURCES;PUBLIC_HEADERS;DEPENDS;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT LIBRARY_INCLUDE_AS)
    set(LIBRARY_INCLUDE_AS "${folder}")
  endif()
  file(GLOB found RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS "*.h")
  foreach(header IN LISTS found)
    if(NOT header IN_LIST LIBRARY_PUBLIC_HEADERS)
      message(FATAL_ERROR "${folder}/${header} lies in a library's folder, so it is public: "
        "name it in PUBLIC_HEADERS, or move it to impl/ or to another sub-folder")
    endif()
  endforeach()

  set(include_dir "${PROJECT_BINARY_DIR}/include/${name}")
  set(own_dir "${PROJECT_BINARY_DIR}/include/own/${name}")
  file(REMOVE_RECURSE "${include_dir}" "${own_dir}")
  foreach(header IN LISTS LIBRARY_PUBLIC_HEADERS)
    lockstep_link("${CMAKE_CURRENT_SOURCE_DIR}/${header}"
      "${include_dir}/lockstep/${LIBRARY_INCLUDE_AS}/${header}")
  endforeach()
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/impl")
    lockstep_link("${CMAKE_CURRENT_SOURCE_DIR}/impl" "${include_dir}/lockstep/${folder}/impl")
  endif()
  lockstep_link("${CMAKE_CURRENT_SOURCE_DIR}" "${own_dir}/lockstep/${folder}")
  target_include_directories(lockstep_internal INTERFACE "${own_dir}")

  add_library(lockstep_${name} ${LIBRARY_SOURCES})  # static, or shared with BUILD_SHARED_LIBS
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    DEFINE_SYMBOL ""  # the same objects serve both kinds
    LOCKSTEP_FOLDER "${folder}" LOCKSTEP_INCLUDE_AS "${LIBRARY_INCLUDE_AS}"
    LOCKSTEP_PUBLIC_HEADERS "${LIBRARY_PUBLIC_HEADERS}")
  target_include_directories(lockstep_${name} PRIVATE "${own_dir}" PUBLIC
    "$<BUILD_INTERFACE:${include_dir}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_definitions(lockstep_${name} PRIVATE LOCKSTEP_OWN_LIBRARY=1)
  list(TRANSFORM LIBRARY_DEPENDS PREPEND lockstep_)
  target_link_libraries(lockstep_${name}
    PUBLIC ${LIBRARY_DEPENDS} ${LIBRARY_LIBRARIES} LibTorch::torch
    PRIVATE ${LIBRARY_PRIVATE_LIBRARIES} $<BUILD_INTERFACE:lockstep_flags>)
  lockstep_precompile(lockstep_${name})
  lockstep_compile_together(lockstep_${name})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES ${name})
endfunction()

# Makes the link and the folders above it.
function(lockstep_link target link)
  get_filename_component(parent "${link}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  file(CREATE_LINK "${target}" "${link}" SYMBOLIC)
endfunction()

# Eight sources are compiled as one, which halves the time of a whole build. A source stays alone
#   - with kernels: Highway includes it again for each instruction set (and has no precompiled header before it: after one
#     GCC 12 for aarch64 crashes in arm_sve.h);
#   - if programs may leave it out or replace it, since a linker takes one object as a whole (SKIP_UNITY_BUILD_INCLUSION).
function(lockstep_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(LOCKSTEP_UNITY)  # GCC takes a source for a header, in which a type of one source alone would be wrong
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    # What includes them names them by their whole path, which ccache does not see.
    target_compile_options(${target} PRIVATE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "[.]cpp$")
      file(STRINGS "${source}" kernels REGEX "define HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
      if(kernels)
        set_source_files_properties("${source}" PROPERTIES
          SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endif()
  endforeach()
endfunction()

# LibTorch's headers take longest in most sources: the libraries share one precompiled header of them.
# (-fpch-preprocess is for ccache.)
function(lockstep_precompile target)
  if(NOT TARGET lockstep_headers)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/lockstep_headers.cpp" CONTENT "")
    add_library(lockstep_headers OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/lockstep_headers.cpp")
    target_link_libraries(lockstep_headers PRIVATE LibTorch::torch lockstep_flags)
    target_compile_options(lockstep_headers PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    target_precompile_headers(lockstep_headers PRIVATE
      <ATen/ATen.h> <torch/nn/module.h> <torch/optim/optimizer.h>
      <algorithm> <chrono> <filesystem> <fstream> <functional> <iostream> <map> <set> <sstream>)
  endif()
  target_precompile_headers(${target} REUSE_FROM lockstep_headers)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# lockstep::lockstep is all libraries together, with the umbrella header <lockstep/lockstep.h>.
function(lockstep_add_umbrella)
  get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
  list(TRANSFORM libraries PREPEND lockstep_ OUTPUT_VARIABLE targets)
  set(include_dir "${PROJECT_BINARY_DIR}/include/umbrella")
  lockstep_link("${PROJECT_SOURCE_DIR}/lockstep.h" "${include_dir}/lockstep/lockstep.h")
  add_library(lockstep INTERFACE)
  add_library(lockstep::lockstep ALIAS lockstep)
  target_include_directories(lockstep INTERFACE
    "$<BUILD_INTERFACE:${include_dir}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(lockstep INTERFACE ${targets})
endfunction()
