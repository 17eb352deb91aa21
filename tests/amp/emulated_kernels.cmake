# The kernels of amp/cuda/*.cu as C++, on a device that the host emulates (emulated_cuda/device.h). A program that
# links `emulated_kernels` has the launch_* functions of amp/cuda/launch.h and row_launch.h, for
# pointers to host memory.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  return()  # emulated_cuda/stacks.cpp
endif()

add_library(emulated_cuda STATIC EXCLUDE_FROM_ALL
  emulated_cuda/multiprocessor.cpp emulated_cuda/runtime.cpp emulated_cuda/stacks.cpp)
target_compile_features(emulated_cuda PUBLIC cxx_std_17)
target_link_libraries(emulated_cuda PUBLIC Threads::Threads PRIVATE lockstep_internal)

get_property(kernels GLOBAL PROPERTY LOCKSTEP_KERNELS)
list(TRANSFORM kernels PREPEND "${PROJECT_SOURCE_DIR}/amp/")
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)

# lockstep_add_emulated_kernels(name emulated_cuda/races_*.cpp [compiler option...])
function(lockstep_add_emulated_kernels name races)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${kernels} ${races})
  target_include_directories(${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/emulated_cuda"
    "${PROJECT_BINARY_DIR}/include/own/amp" "${PROJECT_BINARY_DIR}/include/amp" "${PROJECT_BINARY_DIR}/include/collectives")
  # As for the device: no fused multiply-add.
  target_compile_options(${name} PRIVATE -ffp-contract=off ${ARGN})
  target_link_libraries(${name} PUBLIC emulated_cuda PRIVATE lockstep_internal)
endfunction()
lockstep_add_emulated_kernels(emulated_kernels emulated_cuda/races_ignored.cpp)
# The same in namespace lockstep::amp::emulated, for programs that have others of these names.
lockstep_add_emulated_kernels(emulated_kernels_apart emulated_cuda/races_ignored.cpp -Dcuda=emulated)
