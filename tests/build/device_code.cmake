# build.device_code: the arithmetic that CPU kernels share with CUDA ones is device code. Present
# where there is an nvcc: the toolkit's, or the one of requirements-cuda.txt beside LibTorch.
find_program(LOCKSTEP_NVCC nvcc
  HINTS "${LibTorch_CUDA_ROOT}" ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
if(LOCKSTEP_NVCC)
  add_test(NAME build.device_code COMMAND "${LOCKSTEP_NVCC}" -std=c++17 -arch=sm_90
    -Werror all-warnings "-I${PROJECT_BINARY_DIR}/include/amp"
    -cubin -o "${CMAKE_CURRENT_BINARY_DIR}/device_code.cubin"
    "${CMAKE_CURRENT_SOURCE_DIR}/device_code.cu")
  set_tests_properties(build.device_code PROPERTIES LABELS build TIMEOUT 300)
endif()
