# Kernels are compiled by nvcc itself, file by file: no CUDA language in CMake, so that neither this
# project nor those that use it look for a toolkit, and a wheel's nvcc serves as well as a toolkit's.
# Sets LOCKSTEP_NVCC to the compiler, or to nothing for a build without kernels, and
# LOCKSTEP_TOOLKIT_HEADERS to the folder of the headers that come with nvcc, not with torch's wheel.
set(LOCKSTEP_CUDA AUTO CACHE STRING "CUDA kernels: ON, OFF, or AUTO: where there is an nvcc")
set_property(CACHE LOCKSTEP_CUDA PROPERTY STRINGS AUTO ON OFF)

set(LOCKSTEP_NVCC)
set(_why)
if(LOCKSTEP_CUDA STREQUAL "OFF")
  set(_why "LOCKSTEP_CUDA is OFF")
elseif(NOT LibTorch_CUDA)
  set(_why "this LibTorch is for CPUs")
else()
  find_program(LOCKSTEP_NVCC_PROGRAM nvcc
    HINTS "${LibTorch_CUDA_ROOT}" ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(LOCKSTEP_NVCC_PROGRAM)
  if(NOT LOCKSTEP_NVCC_PROGRAM)
    set(_why "there is no nvcc in PATH, CUDA_HOME, /usr/local/cuda or ${LibTorch_CUDA_ROOT}")
  else()
    execute_process(COMMAND "${LOCKSTEP_NVCC_PROGRAM}" --version OUTPUT_VARIABLE _version
      ERROR_QUIET)
    string(REGEX MATCH "^[0-9]+" _wanted "${LibTorch_CUDA}")
    string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" _ "${_version}")
    set(LOCKSTEP_NVCC_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    if(NOT CMAKE_MATCH_1 STREQUAL _wanted)
      set(_why "${LOCKSTEP_NVCC_PROGRAM} is CUDA ${LOCKSTEP_NVCC_VERSION}, LibTorch ${LibTorch_CUDA}")
    else()
      set(LOCKSTEP_NVCC "${LOCKSTEP_NVCC_PROGRAM}")
    endif()
  endif()
endif()
find_path(LOCKSTEP_TOOLKIT_HEADERS crt/host_config.h
  HINTS "${LibTorch_CUDA_ROOT}" ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
mark_as_advanced(LOCKSTEP_TOOLKIT_HEADERS)
if(LOCKSTEP_NVCC)
  message(STATUS "CUDA kernels: ${LOCKSTEP_NVCC} (${LOCKSTEP_NVCC_VERSION})")
elseif(LOCKSTEP_CUDA STREQUAL "ON")
  message(FATAL_ERROR "LOCKSTEP_CUDA is ON, but ${_why}")
else()
  message(STATUS "CUDA kernels: none, ${_why}")
endif()

# Machine code for the devices that train most, and PTX of the oldest architecture that nvcc knows:
# every other device translates that at its first use.
set(_oldest 70)
if(LOCKSTEP_NVCC_VERSION VERSION_GREATER_EQUAL 13.0)
  set(_oldest 75)
endif()
set(LOCKSTEP_CUDA_ARCHITECTURES "${_oldest}-virtual;80-real;90-real" CACHE STRING
  "Architectures of the kernels, 70 to 120: N-real for machine code, N-virtual for PTX")

# lockstep_cuda_objects(variable file.cu...) appends the objects of the files to the list.
function(lockstep_cuda_objects variable)
  set(flags)
  foreach(architecture IN LISTS LOCKSTEP_CUDA_ARCHITECTURES)
    if(NOT architecture MATCHES "^([0-9]+[af]?)-(real|virtual)$")
      message(FATAL_ERROR "LOCKSTEP_CUDA_ARCHITECTURES: '${architecture}' is not N-real or N-virtual")
    endif()
    set(code "sm_${CMAKE_MATCH_1}")
    if(CMAKE_MATCH_2 STREQUAL "virtual")
      set(code "compute_${CMAKE_MATCH_1}")
    endif()
    list(APPEND flags -gencode "arch=compute_${CMAKE_MATCH_1},code=${code}")
  endforeach()
  set(objects ${${variable}})
  foreach(source IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER "${source}" stem)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${stem}.o")
    # No fused multiply-add, as on the host: equal bits. No array of a thread in memory.
    add_custom_command(OUTPUT "${object}"
      COMMAND "${LOCKSTEP_NVCC}" -c -std=c++17 -O3 -fmad=false -ccbin "${CMAKE_CXX_COMPILER}"
        -Xcompiler -fPIC -Xptxas -warn-lmem-usage -Werror all-warnings ${flags}
        -DLOCKSTEP_OWN_LIBRARY=1 "-I${PROJECT_BINARY_DIR}/include/own/amp"
        "-I${PROJECT_BINARY_DIR}/include/amp" "-I${PROJECT_BINARY_DIR}/include/collectives"
        -MD -MF "${object}.d" -o "${object}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
      DEPENDS "${source}" DEPFILE "${object}.d" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
