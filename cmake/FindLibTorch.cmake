# FindLibTorch: imports the LibTorch inside a PyPI torch wheel, with or without a CUDA toolkit.
#   LibTorch_ROOT (var or env) = <site-packages>/torch, or the unpacked libtorch/ of a zip for CPUs;
#   else asked from Python3_EXECUTABLE / python3.
# Targets: LibTorch::torch (everything), LibTorch::cudart, LibTorch::nccl (CUDA wheels only).
# Vars: LibTorch_VERSION, LibTorch_CUDA (e.g. 13.0, empty for a CPU wheel), LibTorch_CUDA_ROOT.
if(NOT LibTorch_ROOT AND DEFINED ENV{LibTorch_ROOT})
  set(LibTorch_ROOT "$ENV{LibTorch_ROOT}")
endif()
if(NOT LibTorch_ROOT)
  find_program(Python3_EXECUTABLE NAMES python3 python)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE LibTorch_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(_lib "${LibTorch_ROOT}/lib")
set(LibTorch_INCLUDE_DIRS "${LibTorch_ROOT}/include" "${LibTorch_ROOT}/include/torch/csrc/api/include")
if(EXISTS "${LibTorch_ROOT}/version.py")
  file(STRINGS "${LibTorch_ROOT}/version.py" _v REGEX "^__version__|^cuda")
  string(REGEX MATCH "__version__ = '([0-9.]+)" _ "${_v}")
  set(LibTorch_VERSION "${CMAKE_MATCH_1}")
  string(REGEX MATCH "cuda[^=;]*= '([0-9.]+)" _ "${_v}")
  set(LibTorch_CUDA "${CMAKE_MATCH_1}")
elseif(EXISTS "${LibTorch_ROOT}/build-version")  # a zip: 2.11.0+cpu
  file(STRINGS "${LibTorch_ROOT}/build-version" _v LIMIT_COUNT 1)
  string(REGEX MATCH "^([0-9.]+)" _ "${_v}")
  set(LibTorch_VERSION "${CMAKE_MATCH_1}")
  if(EXISTS "${_lib}/libtorch_cuda.so")
    message(FATAL_ERROR "${LibTorch_ROOT} is an unpacked LibTorch ${_v}, whose CUDA run-time and NCCL "
      "lockstep does not find: install the wheel torch==${LibTorch_VERSION} with pip and give "
      "-DLibTorch_ROOT=<site-packages>/torch, or take the zip for CPUs")
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT LibTorch_VERSION VERSION_VAR LibTorch_VERSION)
if(NOT LibTorch_FOUND OR TARGET LibTorch::torch)
  return()
endif()
macro(_lt_import name file)
  add_library(LibTorch::${name} SHARED IMPORTED)
  set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${file}")
endmacro()
_lt_import(c10 "${_lib}/libc10.so")
_lt_import(cpu "${_lib}/libtorch_cpu.so")
_lt_import(main "${_lib}/libtorch.so")
add_library(LibTorch::torch INTERFACE IMPORTED)
target_include_directories(LibTorch::torch SYSTEM INTERFACE ${LibTorch_INCLUDE_DIRS})
file(STRINGS "${LibTorch_ROOT}/include/torch/csrc/api/include/torch/all.h" _std REGEX "#error C\\+\\+[0-9]+ or later")
string(REGEX MATCH "C\\+\\+([0-9]+)" _ "${_std}")
target_compile_features(LibTorch::torch INTERFACE cxx_std_${CMAKE_MATCH_1})  # 17 up to 2.11, 20 in 2.15
# libtorch_cpu.so exports the std::filesystem of another GCC: programs that take remove_all from it
# crash. So the compiler's own library comes first on the link line and in the search at run time.
target_link_options(LibTorch::torch INTERFACE
  "LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state")
target_link_libraries(LibTorch::torch INTERFACE LibTorch::main LibTorch::cpu LibTorch::c10)
if(EXISTS "${_lib}/libtorch_cuda.so")
  get_filename_component(_nv "${LibTorch_ROOT}/../nvidia" ABSOLUTE)
  string(REGEX MATCH "^[0-9]+" _major "${LibTorch_CUDA}")
  set(LibTorch_CUDA_ROOT "${_nv}/cu${_major}")      # CUDA 13 wheels: one tree for all of it
  if(NOT EXISTS "${LibTorch_CUDA_ROOT}/lib")        # CUDA 12 wheels: a tree for each library
    set(LibTorch_CUDA_ROOT "${_nv}/cuda_runtime")
  endif()
  _lt_import(c10_cuda "${_lib}/libc10_cuda.so")
  _lt_import(cudart "${LibTorch_CUDA_ROOT}/lib/libcudart.so.${_major}")
  _lt_import(nccl "${_nv}/nccl/lib/libnccl.so.2")
  # nvcc brings its own headers: the wheel's are for host C++ only, so the two never mix
  target_include_directories(LibTorch::cudart SYSTEM INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${LibTorch_CUDA_ROOT}/include>")
  target_include_directories(LibTorch::nccl SYSTEM INTERFACE "${_nv}/nccl/include")
  target_link_libraries(LibTorch::nccl INTERFACE LibTorch::cudart)
  # libtorch_cuda only registers kernels, no symbol of it need be used: keep it under --as-needed
  target_link_libraries(LibTorch::torch INTERFACE
    "-Wl,--push-state,--no-as-needed,${_lib}/libtorch_cuda.so,--pop-state"
    LibTorch::c10_cuda LibTorch::cudart)
endif()
