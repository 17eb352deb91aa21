# The build rules that every room shares. Included by the root and usable by nothing else.
include(GNUInstallDirs)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# The wheel's libraries must be found at run time, before and after install.
set(CMAKE_BUILD_RPATH "${LibTorch_ROOT}/lib")
set(CMAKE_INSTALL_RPATH "${LibTorch_ROOT}/lib")

add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wno-unused-parameter)

# lockstep_add_room(name SOURCES file... [DEPENDS room...] [LIBRARIES target...] [PRIVATE_LIBRARIES target...])
#
# Makes lockstep::name. Its only public include directory is a build-tree folder that holds the link
# lockstep/name -> the room's sources, so a room sees the rooms it DEPENDS on and no other: an
# include against the arrows does not compile.
function(lockstep_add_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  set(include_dir "${PROJECT_BINARY_DIR}/include/${name}")
  file(MAKE_DIRECTORY "${include_dir}/lockstep")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${include_dir}/lockstep/${name}" SYMBOLIC)

  add_library(lockstep_${name} STATIC ${ROOM_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lockstep_${name} PUBLIC
    "$<BUILD_INTERFACE:${include_dir}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  list(TRANSFORM ROOM_DEPENDS PREPEND lockstep_)
  target_link_libraries(lockstep_${name}
    PUBLIC ${ROOM_DEPENDS} ${ROOM_LIBRARIES} LibTorch::torch
    PRIVATE ${ROOM_PRIVATE_LIBRARIES} $<BUILD_INTERFACE:lockstep_flags>)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ROOMS ${name})
endfunction()

# lockstep::lockstep is all rooms together, with the umbrella header <lockstep/lockstep.h>.
function(lockstep_add_umbrella)
  get_property(rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)
  list(TRANSFORM rooms PREPEND lockstep_ OUTPUT_VARIABLE targets)
  set(include_dir "${PROJECT_BINARY_DIR}/include/umbrella")
  file(MAKE_DIRECTORY "${include_dir}/lockstep")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/lockstep.h" "${include_dir}/lockstep/lockstep.h" SYMBOLIC)
  add_library(lockstep INTERFACE)
  add_library(lockstep::lockstep ALIAS lockstep)
  target_include_directories(lockstep INTERFACE
    "$<BUILD_INTERFACE:${include_dir}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(lockstep INTERFACE ${targets})
endfunction()
