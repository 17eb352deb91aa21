# FindLibTorch: imports a LibTorch wherever it comes from: PyPI's wheel, a zip, conda, a container, a build of one's own.
#   LibTorch_ROOT (variable or environment): the folder that has include/torch and lib/libtorch.so; else the torch of
#     Python3_EXECUTABLE or python3, else the active conda environment.
#   CUDAToolkit_ROOT, NCCL_ROOT (variables or environment), LibTorch_CUDA_LIBRARY_DIRS: where libraries lie that LibTorch
#     needs and does not find by itself, and the headers of CUDA and NCCL.
# Targets: LibTorch::torch (everything); of a LibTorch for CUDA LibTorch::cudart, and LibTorch::nccl, the headers of NCCL,
#   if it has NCCL and a header fits.
# Vars: LibTorch_VERSION, LibTorch_CUDA (13.0, or 13 where the minor version is not known; empty for CPUs),
#   LibTorch_CUDA_ROOT (of the CUDA headers, may be empty), LibTorch_NCCL_HEADER (as 22809; 0: none), LibTorch_WITHOUT_NCCL (why),
#   LibTorch_LIBRARY_DIRS (for the run-time paths of programs), LibTorch_CUDART_LINK (a link that belongs in these paths).
foreach(_name IN ITEMS LibTorch CUDAToolkit NCCL)
  if(NOT ${_name}_ROOT)
    set(${_name}_ROOT "$ENV{${_name}_ROOT}")
  endif()
endforeach()
if(NOT LibTorch_ROOT)
  find_program(Python3_EXECUTABLE NAMES python3 python)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE LibTorch_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT LibTorch_ROOT AND EXISTS "$ENV{CONDA_PREFIX}/lib/libtorch.so")
  set(LibTorch_ROOT "$ENV{CONDA_PREFIX}")
endif()
set(LibTorch_INCLUDE_DIRS "${LibTorch_ROOT}/include" "${LibTorch_ROOT}/include/torch/csrc/api/include")
set(LibTorch_VERSION)
foreach(_file IN ITEMS csrc/api/include/torch/version.h headeronly/version.h)  # of 2.8 and older, of newer ones
  if(EXISTS "${LibTorch_ROOT}/include/torch/${_file}")
    file(STRINGS "${LibTorch_ROOT}/include/torch/${_file}" _v REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCHALL "[0-9]+" _v "${_v}")
    if(_v)
      list(JOIN _v "." LibTorch_VERSION)
    endif()
  endif()
endforeach()
set(LibTorch_LIBRARY)
if(EXISTS "${LibTorch_ROOT}/lib/libtorch.so")
  set(LibTorch_LIBRARY "${LibTorch_ROOT}/lib/libtorch.so")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT LibTorch_VERSION LibTorch_LIBRARY VERSION_VAR LibTorch_VERSION)
if(NOT LibTorch_FOUND OR TARGET LibTorch::torch)
  return()
endif()
# The loader looks beside the name by which it opens a library: so name the files, not links to them.
file(REAL_PATH "${LibTorch_LIBRARY}" _lib)
get_filename_component(_lib "${_lib}" DIRECTORY)
file(STRINGS "${_lib}/libc10.so" _old_abi REGEX "torchCheckFailEPKcS2_jRKSs" LIMIT_COUNT 1)
if(_old_abi)
  message(FATAL_ERROR "${LibTorch_ROOT} was built with _GLIBCXX_USE_CXX11_ABI=0: its std::string is not this compiler's, "
    "and nothing would link. Take a wheel or zip of torch 2.7 or newer, or build LibTorch without that option")
endif()

# What the dynamic loader gets for LibTorch's libraries: by their own run-time paths, then from these folders, then from
# the system. Sets _needed (lines of ldd) and _missing (names).
# In a cross build with CMAKE_CROSSCOMPILING_EMULATOR it is the loader of the target that is asked.
function(_lt_ask_loader folders)
  list(JOIN folders ":" folders)
  file(GLOB asked "${_lib}/libtorch_cpu.so" "${_lib}/libtorch_cuda*.so")
  set(loader ldd)
  if(CMAKE_CROSSCOMPILING AND CMAKE_CROSSCOMPILING_EMULATOR)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" "--sysroot=${CMAKE_SYSROOT}"
        "-print-file-name=ld-linux-${CMAKE_SYSTEM_PROCESSOR}.so.1"
      OUTPUT_VARIABLE loader OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(loader ${CMAKE_CROSSCOMPILING_EMULATOR} "${loader}" --list)
  endif()
  set(needed)
  set(said)
  foreach(file IN LISTS asked)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env "LD_LIBRARY_PATH=${folders}" ${loader} "${file}"
      OUTPUT_VARIABLE output ERROR_VARIABLE error)
    string(APPEND needed "${output}")
    string(APPEND said "${error}")
  endforeach()
  string(REGEX MATCHALL "[^ \t\n]+ => not found" missing "${needed}")
  list(TRANSFORM missing REPLACE " => .*" "")
  list(REMOVE_DUPLICATES missing)
  list(FILTER missing EXCLUDE REGEX "^libcuda\\.so")  # the driver's: a machine without a GPU has none
  set(_needed "${needed}${said}" PARENT_SCOPE)
  set(_missing "${missing}" PARENT_SCOPE)
endfunction()

# The path of the library that the loader gets for a name; empty: none.
function(_lt_loaded variable name)
  set(${variable} "" PARENT_SCOPE)
  if(_needed MATCHES "(^|[ \t\n])${name}[^\n ]* => ([^\n]+) \\(0x")
    get_filename_component(path "${CMAKE_MATCH_2}" ABSOLUTE)
    set(${variable} "${path}" PARENT_SCOPE)
  endif()
endfunction()

# _lt_find_header(variable header macro least most folder...): the first of the folders whose header defines the macro as
# a number in this range. Sets variable (empty: none), variable_NUMBER, and variable_UNFIT: the files of other versions.
function(_lt_find_header variable header macro least most)
  set(found)
  set(number 0)
  set(unfit)
  foreach(folder IN LISTS ARGN)
    if(NOT found AND EXISTS "${folder}/${header}")
      file(STRINGS "${folder}/${header}" line REGEX "^#define ${macro} +[0-9]+")
      string(REGEX MATCH "[0-9]+$" number "${line}")
      if(number AND NOT number LESS least AND NOT number GREATER most)
        get_filename_component(found "${folder}" ABSOLUTE)
      else()
        list(APPEND unfit "${folder}/${header} (${macro} ${number})")
        set(number 0)
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES unfit)
  set(${variable} "${found}" PARENT_SCOPE)
  set(${variable}_NUMBER "${number}" PARENT_SCOPE)
  set(${variable}_UNFIT "${unfit}" PARENT_SCOPE)
endfunction()

# Folders of headers: of the package that a library is part of, and of the system.
function(_lt_headers_of variable library)
  file(REAL_PATH "${library}" library)
  get_filename_component(folder "${library}" DIRECTORY)
  set(${variable} "${folder}/../include" "${folder}/../../include" "/usr/include" PARENT_SCOPE)
endfunction()

macro(_lt_import name file)
  add_library(LibTorch::${name} SHARED IMPORTED)
  set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${file}")
endmacro()

_lt_ask_loader("")
set(_major)
if(_needed MATCHES "libcudart[^\n ]*\\.so\\.([0-9]+)")
  set(_major "${CMAKE_MATCH_1}")
endif()
file(GLOB _toolkits LIST_DIRECTORIES true "/usr/local/cuda-${_major}*")
set(_toolkits ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${_toolkits})
set(_gaps)
if(_missing)
  file(TO_CMAKE_PATH "$ENV{LD_LIBRARY_PATH}" _searched)
  set(_folders ${LibTorch_CUDA_LIBRARY_DIRS})
  foreach(_root IN LISTS NCCL_ROOT _toolkits)
    list(APPEND _folders "${_root}/lib" "${_root}/lib64" "${_root}/extras/CUPTI/lib64")
  endforeach()
  list(APPEND _folders ${_searched})
  _lt_ask_loader("${_folders}")
  if(_missing)
    list(JOIN _missing ", " _missing)
    message(FATAL_ERROR "LibTorch in ${_lib} needs ${_missing}: not beside it and not in this system. Name their folders: "
      "-DCUDAToolkit_ROOT=DIR (which has lib64/libcudart.so.${_major}), -DNCCL_ROOT=DIR, "
      "-DLibTorch_CUDA_LIBRARY_DIRS=DIR;DIR for others. Or take the wheel, which brings them: pip install "
      "torch==${LibTorch_VERSION}, -DLibTorch_ROOT=<site-packages>/torch")
  endif()
  foreach(_folder IN LISTS _folders)
    string(FIND "${_needed}" "=> ${_folder}/" _at)
    if(_at GREATER -1)
      list(APPEND _gaps "${_folder}")
    endif()
  endforeach()
endif()

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
_lt_loaded(LibTorch_MPI_LIBRARY "libmpi\\.so")
set(LibTorch_LIBRARY_DIRS "${_lib}")
set(LibTorch_CUDA)
set(LibTorch_CUDA_ROOT)
set(LibTorch_CUDART_LINK)
set(LibTorch_NCCL_HEADER 0)
set(LibTorch_WITHOUT_NCCL)
if(EXISTS "${_lib}/libtorch_cuda.so")
  _lt_loaded(_cudart "libcudart")
  if(NOT _cudart)
    string(STRIP "${_needed}" _needed)
    message(FATAL_ERROR "ldd names no libcudart.so that ${_lib}/libtorch_cuda.so loads, so lockstep cannot share LibTorch's "
      "CUDA run-time. Take a LibTorch that links to a shared one. ldd says: ${_needed}")
  endif()
  set(LibTorch_CUDA "${_major}")
  foreach(_file IN ITEMS version.py build-version)  # of a Python package; of a zip: 2.11.0+cu130
    if(EXISTS "${LibTorch_ROOT}/${_file}")
      file(STRINGS "${LibTorch_ROOT}/${_file}" _v REGEX "^cuda|^[0-9].*\\+cu[0-9]")
      if(_v MATCHES "'([0-9]+)\\.([0-9]+)|\\+cu([0-9]+)([0-9])$")
        set(LibTorch_CUDA "${CMAKE_MATCH_1}${CMAKE_MATCH_3}.${CMAKE_MATCH_2}${CMAKE_MATCH_4}")
      endif()
    endif()
  endforeach()
  _lt_headers_of(_near "${_cudart}")
  get_filename_component(_cudart_dir "${_cudart}" DIRECTORY)
  list(APPEND LibTorch_LIBRARY_DIRS "${_cudart_dir}")
  if(_cudart MATCHES "/libcudart-[0-9a-f]+(\\.so\\..*)$")
    # Zips up to 2.11 have renamed the file and not its SONAME, which programs ask for: a link of that name makes both one.
    set(LibTorch_CUDART_LINK "${CMAKE_BINARY_DIR}/libtorch/libcudart${CMAKE_MATCH_1}")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/libtorch")
    file(CREATE_LINK "${_cudart}" "${LibTorch_CUDART_LINK}" SYMBOLIC)
    set(_cudart "${LibTorch_CUDART_LINK}")
    list(PREPEND LibTorch_LIBRARY_DIRS "${CMAKE_BINARY_DIR}/libtorch")
  endif()
  _lt_import(c10_cuda "${_lib}/libc10_cuda.so")
  _lt_import(cudart "${_cudart}")
  # libtorch_cuda only registers kernels, no symbol of it need be used: keep it under --as-needed
  target_link_libraries(LibTorch::torch INTERFACE
    "-Wl,--push-state,--no-as-needed,${_lib}/libtorch_cuda.so,--pop-state"
    LibTorch::c10_cuda LibTorch::cudart)

  set(_named)
  set(_others)
  foreach(_root IN LISTS _toolkits)
    file(GLOB _targets LIST_DIRECTORIES true "${_root}/targets/*/include")
    list(APPEND _others "${_root}/include" ${_targets})
    if(_root STREQUAL CUDAToolkit_ROOT)
      set(_named ${_others})
    endif()
  endforeach()
  _lt_find_header(_cuda_h cuda_runtime_api.h CUDART_VERSION "${_major}000" "${_major}999" ${_named} ${_near} ${_others})
  if(_cuda_h)  # nvcc brings its own: these are for host C++ only, so the two never mix
    get_filename_component(LibTorch_CUDA_ROOT "${_cuda_h}" DIRECTORY)
    target_include_directories(LibTorch::cudart SYSTEM INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_cuda_h}>")
  endif()

  # NCCL is a library that libtorch_cuda.so loads, or inside libtorch_cuda.so; either holds its version as a text.
  _lt_loaded(_nccl "libnccl\\.so")
  if(NOT _nccl)
    set(_nccl "${_lib}/libtorch_cuda.so")
  endif()
  execute_process(COMMAND grep -qam1 ncclCommInitRankConfig "${_lib}/libtorch_cuda.so" RESULT_VARIABLE _without)
  execute_process(COMMAND grep -aoEm1 "NCCL version [0-9]+[.][0-9]+[.][0-9]+([+]cuda| compiled)" "${_nccl}"
    OUTPUT_VARIABLE _version ERROR_QUIET)
  set(_unfit)
  if(_without EQUAL 0)
    set(_newest 999999)  # where the version is not known, any header
    if(_version MATCHES "([0-9]+)\\.([0-9]+)\\.([0-9]+)")
      set(_version "${CMAKE_MATCH_0}")
      math(EXPR _newest "${CMAKE_MATCH_1} * 10000 + ${CMAKE_MATCH_2} * 100 + ${CMAKE_MATCH_3}")
    endif()
    _lt_headers_of(_near "${_nccl}")
    _lt_find_header(_nccl_h nccl.h NCCL_VERSION_CODE 1 ${_newest} ${NCCL_ROOT}/include ${_near} ${_named} ${_others})
    if(_nccl_h AND _cuda_h)
      add_library(LibTorch::nccl INTERFACE IMPORTED)
      target_include_directories(LibTorch::nccl SYSTEM INTERFACE "${_nccl_h}")
      target_link_libraries(LibTorch::nccl INTERFACE LibTorch::cudart)
      set(LibTorch_NCCL_HEADER ${_nccl_h_NUMBER})
    else()
      set(LibTorch_WITHOUT_NCCL "there was no nccl.h of LibTorch's NCCL ${_version} or an older one, or no cuda_runtime_api.h of "
        "CUDA ${_major}: name their places in NCCL_ROOT and CUDAToolkit_ROOT")
      list(JOIN LibTorch_WITHOUT_NCCL "" LibTorch_WITHOUT_NCCL)
      set(_unfit ${_nccl_h_UNFIT} ${_cuda_h_UNFIT})
    endif()
  else()
    set(LibTorch_WITHOUT_NCCL "its LibTorch for CUDA has none (USE_NCCL=0): take another")
  endif()
  if(LibTorch_WITHOUT_NCCL)
    list(JOIN _unfit ", " _unfit)
    message(STATUS "NCCL: none, ${LibTorch_WITHOUT_NCCL} ${_unfit}")
  endif()
else()
  set(LibTorch_WITHOUT_NCCL "its LibTorch is for CPUs: take one for CUDA")
endif()
set(LibTorch_CUDA_LIBRARY_DIRS ${_gaps})  # for those who look for LibTorch again, in an installed lockstep
if(_gaps)
  # What LibTorch's libraries need is searched in DT_RPATH of the program, not in its DT_RUNPATH.
  list(APPEND LibTorch_LIBRARY_DIRS ${_gaps})
  target_link_options(LibTorch::torch INTERFACE "LINKER:--disable-new-dtags")
  list(TRANSFORM _gaps PREPEND "-Wl,-rpath,")
  target_link_libraries(LibTorch::torch INTERFACE ${_gaps})
endif()
list(REMOVE_DUPLICATES LibTorch_LIBRARY_DIRS)
list(REMOVE_ITEM LibTorch_LIBRARY_DIRS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
