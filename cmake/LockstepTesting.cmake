# How tests are added. Every test program is GoogleTest; ctest names are library.Suite.Test for unit
# tests and library.name.npN for tests of N ranks.
include(GoogleTest)
find_package(GTest REQUIRED)

execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version
  OUTPUT_VARIABLE _mpiexec_version ERROR_VARIABLE _mpiexec_version)
set(LOCKSTEP_MPIEXEC "${MPIEXEC_EXECUTABLE}")
if(_mpiexec_version MATCHES "Open MPI|OpenRTE|PRRTE")
  # More ranks than cores is normal here, and two tests at a time must not share a core by binding.
  list(APPEND LOCKSTEP_MPIEXEC --oversubscribe --bind-to none)
endif()

# The same programs run under MPICH too, where Open MPI is the first and this is here.
find_program(LOCKSTEP_MPICH_MPIEXEC NAMES mpiexec.mpich)
if(LOCKSTEP_MPICH_MPIEXEC AND _mpiexec_version MATCHES "Open MPI|OpenRTE|PRRTE")
  set(LOCKSTEP_MPICH "${LOCKSTEP_MPICH_MPIEXEC}")
endif()

set(LOCKSTEP_GPU_TEST_ENVIRONMENT OMP_NUM_THREADS=1
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
# The other tests run on CPUs, also where there are GPUs, which a Runtime would choose.
set(LOCKSTEP_TEST_ENVIRONMENT ${LOCKSTEP_GPU_TEST_ENVIRONMENT} CUDA_VISIBLE_DEVICES=)

# How much longer a test may take than in an optimised build.
set(LOCKSTEP_TEST_PATIENCE 1)
if(CMAKE_BUILD_TYPE MATCHES "^(Debug|Sanitize)$")
  set(LOCKSTEP_TEST_PATIENCE 5)
endif()

# A program with the property LIBTORCH_FOR_CPU is linked without LibTorch's CUDA libraries: programs
# on the pretend device, which takes the place of CUDA.
get_target_property(_libraries LibTorch::torch INTERFACE_LINK_LIBRARIES)
list(TRANSFORM _libraries REPLACE "^(LibTorch::main|LibTorch::c10_cuda|-Wl,.*libtorch_cuda.so.*)$"
  "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:LIBTORCH_FOR_CPU>>>:\\1>")
set_property(TARGET LibTorch::torch PROPERTY INTERFACE_LINK_LIBRARIES "${_libraries}")

# The mains that test programs choose from; tests/*.h say what each offers.
add_library(lockstep_test_seeds STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/seeds.cpp")
target_include_directories(lockstep_test_seeds PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(lockstep_test_seeds
  PUBLIC GTest::gtest LibTorch::torch PRIVATE lockstep_internal)
add_library(lockstep_test_unit_main STATIC EXCLUDE_FROM_ALL
  "${PROJECT_SOURCE_DIR}/tests/unit_main.cpp")
target_link_libraries(lockstep_test_unit_main PUBLIC lockstep_test_seeds PRIVATE lockstep_internal)
add_library(lockstep_test_ranks STATIC EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/ranks.cpp")
target_include_directories(lockstep_test_ranks PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(lockstep_test_ranks
  PUBLIC GTest::gtest lockstep::collectives PRIVATE lockstep_internal)
add_library(lockstep_test_mpi_main STATIC EXCLUDE_FROM_ALL
  "${PROJECT_SOURCE_DIR}/tests/mpi_main.cpp")
target_link_libraries(lockstep_test_mpi_main
  PUBLIC lockstep_test_ranks lockstep_test_seeds lockstep::collectives PRIVATE lockstep_internal)
if(TARGET lockstep::runtime)
  add_library(lockstep_test_runtime_main STATIC EXCLUDE_FROM_ALL
    "${PROJECT_SOURCE_DIR}/tests/runtime_main.cpp" "${PROJECT_SOURCE_DIR}/tests/runtime_tests.cpp")
  target_link_libraries(lockstep_test_runtime_main
    PUBLIC lockstep_test_ranks lockstep::runtime PRIVATE lockstep_internal)
  add_library(lockstep_test_gpu_runtime_main STATIC EXCLUDE_FROM_ALL
    "${PROJECT_SOURCE_DIR}/tests/gpu_runtime_main.cpp"
    "${PROJECT_SOURCE_DIR}/tests/runtime_tests.cpp")
  target_link_libraries(lockstep_test_gpu_runtime_main
    PUBLIC lockstep_test_ranks lockstep::runtime lockstep::amp PRIVATE lockstep_internal)
endif()
if(TARGET lockstep::amp)
  add_library(lockstep_test_gpu_main STATIC EXCLUDE_FROM_ALL
    "${PROJECT_SOURCE_DIR}/tests/gpu_main.cpp")
  target_link_libraries(lockstep_test_gpu_main
    PUBLIC lockstep_test_seeds lockstep::amp PRIVATE lockstep_internal)
endif()

# LibTorch's headers take longest in a test, and optimising it gains nothing: test programs share one
# precompiled header of them, and are compiled with -O1.
add_executable(lockstep_test_headers EXCLUDE_FROM_ALL
  "${PROJECT_SOURCE_DIR}/tests/precompiled_headers.cpp")
target_link_libraries(lockstep_test_headers PRIVATE LibTorch::torch GTest::gmock lockstep_internal)
target_compile_options(lockstep_test_headers PRIVATE -O1 -fpch-preprocess)
target_precompile_headers(lockstep_test_headers PRIVATE
  <gmock/gmock.h> <gtest/gtest.h> <torch/torch.h>)
function(lockstep_compile_as_test target)
  target_compile_options(${target} PRIVATE -O1 -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM lockstep_test_headers)
endfunction()

# lockstep_add_unit_test(library name SOURCES file... [LIBRARIES target...] [TIMEOUT seconds])
#
# One process; each TEST becomes the ctest entry library.Suite.Test. Label: unit.
# Under a sanitizer, where starting a process takes seconds, the whole program is one entry,
# library.name.
function(lockstep_add_unit_test library name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * ${LOCKSTEP_TEST_PATIENCE}")
  set(target ${library}_${name})
  add_executable(${target} ${TEST_SOURCES})
  target_link_libraries(${target} PRIVATE lockstep_test_unit_main GTest::gmock ${TEST_LIBRARIES}
    lockstep_internal)
  lockstep_compile_as_test(${target})
  if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 4")
    add_test(NAME ${library}.${name} COMMAND ${target} --gtest_brief=1)
    set_tests_properties(${library}.${name} PROPERTIES
      LABELS unit TIMEOUT ${TEST_TIMEOUT} ENVIRONMENT OMP_NUM_THREADS=1
      ENVIRONMENT_MODIFICATION CUDA_VISIBLE_DEVICES=set:)
  else()
    gtest_discover_tests(${target} TEST_PREFIX "${library}." DISCOVERY_TIMEOUT 120
      PROPERTIES LABELS unit TIMEOUT ${TEST_TIMEOUT}
        ENVIRONMENT OMP_NUM_THREADS=1
        ENVIRONMENT_MODIFICATION CUDA_VISIBLE_DEVICES=set:)
  endif()
endfunction()

# lockstep_add_mpi_test(library name RANKS n... SOURCES file... [LIBRARIES target...]
#                       [TIMEOUT seconds] [RUNTIME_MAIN | OWN_MAIN] [FROM_2_RANKS test...] [MPICH])
#
# One program, and one ctest entry library.name.npN for each N in RANKS. Label: mpi.
# MPICH: also library.name.mpich, the same program on two ranks of MPICH, where that is installed beside Open MPI.
#   default        tests/mpi_main.cpp: lockstep::testing::world() of mpi_world.h
#   RUNTIME_MAIN   tests/runtime_main.cpp: lockstep::testing::runtime() of test_runtime.h
#   OWN_MAIN       the sources bring a main; it ends with lockstep::testing::run_tests() of ranks.h
# FROM_2_RANKS: tests (patterns of GoogleTest) that say something of several ranks only; np1 leaves
# them out.
function(lockstep_add_mpi_test library name)
  cmake_parse_arguments(TEST "RUNTIME_MAIN;OWN_MAIN;MPICH" "TIMEOUT"
    "RANKS;SOURCES;LIBRARIES;FROM_2_RANKS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 180)
  endif()
  math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * ${LOCKSTEP_TEST_PATIENCE}")
  set(main lockstep_test_mpi_main)
  if(TEST_RUNTIME_MAIN)
    set(main lockstep_test_runtime_main)
  elseif(TEST_OWN_MAIN)
    set(main lockstep_test_ranks)
  endif()
  set(target ${library}_${name}_mpi)
  add_executable(${target} ${TEST_SOURCES})
  target_link_libraries(${target} PRIVATE ${main} GTest::gmock ${TEST_LIBRARIES} lockstep_internal)
  lockstep_compile_as_test(${target})
  foreach(ranks IN LISTS TEST_RANKS)
    set(processors 1)
    set(filter)
    if(ranks GREATER 1)
      set(processors 2)
    elseif(TEST_FROM_2_RANKS)
      list(JOIN TEST_FROM_2_RANKS ":" left_out)
      set(filter "--gtest_filter=-${left_out}")
    endif()
    add_test(NAME ${library}.${name}.np${ranks}
      COMMAND ${LOCKSTEP_MPIEXEC} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${target}>
        ${filter})
    set(entries ${library}.${name}.np${ranks})
    if(TEST_MPICH AND LOCKSTEP_MPICH AND ranks EQUAL 2)
      list(APPEND entries ${library}.${name}.mpich)
      add_test(NAME ${library}.${name}.mpich
        COMMAND "${LOCKSTEP_MPICH}" -n ${ranks} $<TARGET_FILE:${target}>)
    endif()
    set_tests_properties(${entries} PROPERTIES
      LABELS mpi TIMEOUT ${TEST_TIMEOUT} PROCESSORS ${processors}
      ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT};LOCKSTEP_TEST_RANKS=${ranks}")
  endforeach()
endfunction()

# lockstep_add_gpu_test(library name SOURCES file... [COMPILED_BY target...] [LIBRARIES target...]
#                       [TIMEOUT seconds] [RANKS n] [RUNTIME_MAIN] [ONLY_ON_A_GPU test...]
#                       [ONLY_ON_THE_HOST test...])
#
# One process, or n of MPI. What the sources make on testing::device() (tests/test_device.h) is on
# the GPU; with RUNTIME_MAIN (tests/gpu_runtime_main.cpp) testing::runtime(), too. COMPILED_BY: the
# sources are those of tests for the CPU, whose objects are taken. Two or three ctest entries:
#   library.name.gpu      Label: gpu. Where there is no GPU, or no kernels in this build, the test
#                      says so and counts as skipped; tests/gpu_tests.h decides. Ranks meet over
#                      the staged transport.
#   library.name.nccl     With RANKS. The same over NCCL. Skipped where the ranks would have to share
#                      a GPU and cannot; tests/gpu_transport.h decides.
#   library.name.pretend  Label: unit, or mpi. On the device of tests/pretend_device, without the tests
#                      of ONLY_ON_A_GPU (patterns of GoogleTest).
# No entry has the tests of ONLY_ON_THE_HOST, which are of hosts that never run ahead of a device.
function(lockstep_add_gpu_test library name)
  cmake_parse_arguments(TEST "RUNTIME_MAIN" "TIMEOUT;RANKS"
    "SOURCES;COMPILED_BY;LIBRARIES;ONLY_ON_A_GPU;ONLY_ON_THE_HOST" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  set(target ${library}_${name})
  set(main lockstep_test_gpu_main)
  if(TEST_RUNTIME_MAIN)
    set(main lockstep_test_gpu_runtime_main)
  endif()
  list(APPEND TEST_LIBRARIES ${main} GTest::gmock lockstep::amp lockstep_internal)
  if(NOT TEST_COMPILED_BY)
    set(TEST_COMPILED_BY ${target}_gpu_objects)
    add_library(${TEST_COMPILED_BY} OBJECT ${TEST_SOURCES})
    target_link_libraries(${TEST_COMPILED_BY} PRIVATE ${TEST_LIBRARIES})
  endif()
  list(TRANSFORM TEST_COMPILED_BY REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  list(JOIN TEST_SOURCES "|" sources)
  string(REPLACE "." "[.]" sources "${sources}")
  set(objects "$<FILTER:${TEST_COMPILED_BY},INCLUDE,/(${sources})[.]o$>")
  add_executable(${target}_gpu ${objects})
  target_link_libraries(${target}_gpu PRIVATE ${TEST_LIBRARIES})
  if(NOT TARGET lockstep_gpu_tests)
    add_custom_target(lockstep_gpu_tests)
  endif()
  add_dependencies(lockstep_gpu_tests ${target}_gpu)

  set(start)
  set(label unit)
  if(TEST_RANKS)
    set(start ${LOCKSTEP_MPIEXEC} ${MPIEXEC_NUMPROC_FLAG} ${TEST_RANKS})
    set(label mpi)
  endif()
  set(filter)
  if(TEST_ONLY_ON_THE_HOST)
    list(JOIN TEST_ONLY_ON_THE_HOST ":" left_out)
    set(filter "--gtest_filter=-${left_out}")
  endif()
  set(entries gpu)
  if(TEST_RANKS)
    list(APPEND entries nccl)
  endif()
  foreach(entry IN LISTS entries)
    string(REPLACE "gpu" "staged" transport ${entry})
    set(test ${library}.${name}.${entry})
    add_test(NAME ${test} COMMAND ${start} $<TARGET_FILE:${target}_gpu> ${filter})
    set(environment ${LOCKSTEP_GPU_TEST_ENVIRONMENT} LOCKSTEP_TEST_RANKS=${TEST_RANKS}
      LOCKSTEP_TRANSPORT=${transport})
    set_tests_properties(${test} PROPERTIES LABELS gpu TIMEOUT ${TEST_TIMEOUT}
      SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu ENVIRONMENT "${environment}")
    if(COMMAND fake_cuda_program)
      fake_cuda_program(${test} RANKS ${TEST_RANKS} COMMAND ${start} $<TARGET_FILE:${target}_gpu>
        LEFT_OUT ${TEST_ONLY_ON_THE_HOST} ENVIRONMENT ${environment})
    endif()
  endforeach()
  if(NOT TARGET lockstep_pretend_device)
    return()
  endif()

  add_executable(${target}_pretend ${objects})
  target_link_libraries(${target}_pretend PRIVATE lockstep_pretend_device ${TEST_LIBRARIES})
  set_target_properties(${target}_pretend PROPERTIES LIBTORCH_FOR_CPU ON)
  list(APPEND TEST_ONLY_ON_A_GPU ${TEST_ONLY_ON_THE_HOST})
  list(JOIN TEST_ONLY_ON_A_GPU ":" left_out)
  add_test(NAME ${library}.${name}.pretend
    COMMAND ${start} $<TARGET_FILE:${target}_pretend> "--gtest_filter=-${left_out}")
  set_tests_properties(${library}.${name}.pretend PROPERTIES LABELS ${label} TIMEOUT ${TEST_TIMEOUT}
    ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT};LOCKSTEP_TEST_RANKS=${TEST_RANKS}")
endfunction()
