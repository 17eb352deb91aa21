# Kernels are compiled by nvcc itself, file by file: no CUDA language in CMake, so that neither this
# project nor those that use it look for a toolkit, and a wheel's nvcc serves as well as a toolkit's.
# Sets LOCKSTEP_NVCC to the compiler, or to nothing for a build without kernels, and
# LOCKSTEP_TOOLKIT_HEADERS to the folder of the headers that come with nvcc, not with torch's wheel.
# Both are looked for at each configuration: a toolkit may have come since the last one.
set(LOCKSTEP_CUDA AUTO CACHE STRING "CUDA kernels: ON, OFF, or AUTO: where there is an nvcc")
set_property(CACHE LOCKSTEP_CUDA PROPERTY STRINGS AUTO ON OFF)

# Folders that may have bin/nvcc and include/crt.
file(TO_CMAKE_PATH "$ENV{PATH}" _toolkits)
list(FILTER _toolkits INCLUDE REGEX "/bin/?$")
list(TRANSFORM _toolkits REPLACE "/bin/?$" "")
file(GLOB _others "/usr/local/cuda-*")
list(PREPEND _toolkits "${CUDAToolkit_ROOT}" "${LibTorch_CUDA_ROOT}" "$ENV{CUDA_HOME}")
list(APPEND _toolkits "/usr/local/cuda" ${_others})

# Same major version: 1. PTX of a newer minor version than LibTorch's needs a newer driver than LibTorch: 2 without.
function(lockstep_rate_cuda version variable)
  string(REGEX MATCH "^[0-9]+" wanted "${LibTorch_CUDA}")
  string(REGEX MATCH "^[0-9]+" major "${version}")
  set(rate 0)
  if(wanted AND major STREQUAL wanted)
    set(rate 1)
    if(version VERSION_LESS_EQUAL LibTorch_CUDA)
      set(rate 2)
    endif()
  endif()
  set(${variable} ${rate} PARENT_SCOPE)
endfunction()

set(_nvcc)
set(_nvcc_version)
set(_headers)
set(_best 0)
set(_unfit)
foreach(_toolkit IN LISTS _toolkits)
  set(_program "${_toolkit}/bin/nvcc")
  if(_toolkit AND EXISTS "${_program}")
    execute_process(COMMAND "${_program}" --version
      OUTPUT_VARIABLE _version ERROR_VARIABLE _error RESULT_VARIABLE _status)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${_version}")
    set(_version "${CMAKE_MATCH_1}")
    lockstep_rate_cuda("${_version}" _rate)
    if(NOT _status EQUAL 0)
      string(STRIP "${_status} ${_error}" _error)
      list(APPEND _unfit "${_program} does not run: ${_error}")
    elseif(_rate GREATER _best)
      set(_nvcc "${_program}")
      set(_nvcc_version "${_version}")
      set(_best ${_rate})
      file(REAL_PATH "${_program}" _program)
      get_filename_component(_real "${_program}/../.." ABSOLUTE)
      set(_headers "${_toolkit}" "${_real}")
    elseif(_rate EQUAL 0)
      list(APPEND _unfit "${_program} is CUDA ${_version}")
    endif()
  endif()
endforeach()
set(LOCKSTEP_TOOLKIT_HEADERS "")  # of the cache, too
foreach(_toolkit IN LISTS _headers _toolkits)
  set(_includes)
  if(_toolkit)
    file(GLOB _includes "${_toolkit}/include" "${_toolkit}/targets/*/include")  # the second in conda's
  endif()
  foreach(_include IN LISTS _includes)
    if(EXISTS "${_include}/crt/host_config.h" AND EXISTS "${_include}/cuda.h" AND NOT LOCKSTEP_TOOLKIT_HEADERS)
      file(STRINGS "${_include}/cuda.h" _version REGEX "^#define CUDA_VERSION ")
      string(REGEX MATCH "([0-9]+)0([0-9])0$" _ "${_version}")
      lockstep_rate_cuda("${CMAKE_MATCH_1}.${CMAKE_MATCH_2}" _rate)
      if(_rate GREATER 0)
        set(LOCKSTEP_TOOLKIT_HEADERS "${_include}")
      endif()
    endif()
  endforeach()
endforeach()

set(LOCKSTEP_NVCC "")
set(_why)
if(LOCKSTEP_CUDA STREQUAL "OFF")
  set(_why "LOCKSTEP_CUDA is OFF")
elseif(NOT LibTorch_CUDA)
  set(_why "this LibTorch is for CPUs")
elseif(_nvcc)
  set(LOCKSTEP_NVCC "${_nvcc}")
elseif(_unfit)
  list(JOIN _unfit ", " _unfit)
  set(_why "${_unfit}, LibTorch is built for ${LibTorch_CUDA}")
else()
  set(_why "there is no nvcc in PATH, CUDA_HOME, /usr/local/cuda or ${LibTorch_CUDA_ROOT}")
endif()
set(LOCKSTEP_NVCC_PROGRAM "${LOCKSTEP_NVCC}" CACHE INTERNAL "The nvcc of this build, for its tests")
# As scripts/setup sees it.
execute_process(COMMAND bash -c ". '${CMAKE_CURRENT_LIST_DIR}/../scripts/environment.sh' && has_gpu"
  RESULT_VARIABLE _no_gpu OUTPUT_QUIET ERROR_QUIET)
if(LOCKSTEP_NVCC)
  message(STATUS "CUDA kernels: ${LOCKSTEP_NVCC} (${_nvcc_version})")
elseif(LOCKSTEP_CUDA STREQUAL "ON")
  message(FATAL_ERROR "LOCKSTEP_CUDA is ON, but ${_why}")
elseif(NOT LOCKSTEP_CUDA STREQUAL "OFF" AND (_no_gpu EQUAL 0 OR _unfit))
  message(WARNING "CUDA kernels: none, so that mixed precision and fused updates will not run on GPUs: ${_why}. "
    "The wheels of requirements-cuda.txt have an nvcc; LOCKSTEP_CUDA=OFF means a build without")
else()
  message(STATUS "CUDA kernels: none, ${_why}")
endif()

# Machine code for the devices that train most, and PTX of the oldest architecture that nvcc knows:
# every other device translates that at its first use.
set(_oldest 75)
if(LibTorch_CUDA AND LibTorch_CUDA VERSION_LESS 13)
  set(_oldest 70)
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
