# build.arrows.*: an include against the arrows between libraries does not compile.

function(check_arrow from to header)
  set(target lockstep_arrow_${from}_${to})
  set(source "${CMAKE_CURRENT_BINARY_DIR}/arrows/${target}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include <lockstep/@header@>\n" @ONLY)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${target} PRIVATE lockstep::${from})
  build_and_check(arrows.${from}_sees_no_${to} ${target})
  set_tests_properties(build.arrows.${from}_sees_no_${to} PROPERTIES
    PASS_REGULAR_EXPRESSION "lockstep/${header}: No such file or directory")
endfunction()

check_arrow(collectives amp amp/precision.h)
check_arrow(collectives data runtime/loader.h)
check_arrow(amp data runtime/loader.h)
check_arrow(amp snapshot checkpointing/snapshot/snapshot.h)
check_arrow(amp exported inputs/exported_module.h)
check_arrow(activation amp amp/precision.h)
check_arrow(activation snapshot checkpointing/snapshot/snapshot.h)
check_arrow(snapshot activation checkpointing/activation/checkpoint.h)
check_arrow(exported data runtime/loader.h)
check_arrow(datasets data runtime/loader.h)
check_arrow(data process runtime/runtime.h)
check_arrow(process storage runtime/memory_use.h)
check_arrow(storage step runtime/step_report.h)
check_arrow(step saving runtime/load_weights.h)
check_arrow(saving trainer runtime/trainer.h)
check_arrow(trainer loop runtime/train_epochs.h)
check_arrow(loop datasets inputs/idx_file.h)
check_arrow(loop c c/lockstep.h)
# Headers of a library's own: no other library sees them.
check_arrow(amp collectives collectives/host/node_engine.h)

# A program that includes a header of lockstep's own libraries reads why it fails.
add_library(lockstep_arrow_program OBJECT EXCLUDE_FROM_ALL impl_header.cpp)
target_link_libraries(lockstep_arrow_program PRIVATE lockstep::lockstep)
build_and_check(arrows.program_sees_no_impl lockstep_arrow_program)
set_tests_properties(build.arrows.program_sees_no_impl PROPERTIES
  PASS_REGULAR_EXPRESSION "not for programs: include <lockstep/lockstep.h> instead")

# grep's 1 is "found none"; any other code is a failure.
add_test(NAME build.arrows.no_include_by_path COMMAND sh -c
  "grep -rnE '#include \"(\\.\\./|/)' --include=*.h --include=*.cpp collectives amp checkpointing runtime inputs bindings; test $? -eq 1"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.arrows.no_include_by_path PROPERTIES LABELS build)
