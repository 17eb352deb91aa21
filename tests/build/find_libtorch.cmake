# cmake -DMODULES=<repository>/cmake -DLIBTORCH=<its folder> -DFOLDER=<scratch> -P find_libtorch.cmake
# FindLibTorch on what a zip of LibTorch unpacks to: no version.py, but build-version.
function(unpack name version with_cuda)
  set(root "${FOLDER}/${name}")
  file(REMOVE_RECURSE "${root}")
  file(MAKE_DIRECTORY "${root}/lib")
  file(CREATE_LINK "${LIBTORCH}/include" "${root}/include" SYMBOLIC)
  foreach(library c10 torch torch_cpu)
    file(CREATE_LINK "${LIBTORCH}/lib/lib${library}.so" "${root}/lib/lib${library}.so" SYMBOLIC)
  endforeach()
  if(with_cuda)
    file(WRITE "${root}/lib/libtorch_cuda.so" "")
  endif()
  file(WRITE "${root}/build-version" "${version}\n")
  file(WRITE "${FOLDER}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\n"
    "project(uses_a_zip LANGUAGES CXX)\nlist(APPEND CMAKE_MODULE_PATH \"${MODULES}\")\n"
    "find_package(LibTorch 2.11 REQUIRED)\n"
    "message(STATUS \"found \${LibTorch_VERSION}, CUDA '\${LibTorch_CUDA}'\")\n")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${FOLDER}" -B "${FOLDER}/build-${name}"
      "-DLibTorch_ROOT=${root}"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")  # cmake breaks lines where paths are long
  set(status ${status} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

unpack(cpu 2.11.0+cpu FALSE)
if(NOT status EQUAL 0 OR NOT output MATCHES "found 2.11.0, CUDA ''")
  message(FATAL_ERROR "a zip for CPUs: ${status}\n${output}")
endif()
unpack(old 2.4.1+cpu FALSE)
if(status EQUAL 0 OR NOT output MATCHES "2.4.1")
  message(FATAL_ERROR "an old zip: ${status}\n${output}")
endif()
unpack(cuda 2.11.0+cu130 TRUE)
if(status EQUAL 0 OR NOT output MATCHES "install the wheel torch==2.11.0")
  message(FATAL_ERROR "a zip for CUDA: ${status}\n${output}")
endif()
