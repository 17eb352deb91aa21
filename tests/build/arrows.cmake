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
check_arrow(collectives runtime runtime/runtime.h)
check_arrow(amp runtime runtime/runtime.h)
check_arrow(amp snapshot checkpointing/snapshot/snapshot.h)
check_arrow(activation amp amp/precision.h)
check_arrow(activation snapshot checkpointing/snapshot/snapshot.h)
check_arrow(snapshot activation checkpointing/activation/checkpoint.h)
check_arrow(exported runtime runtime/runtime.h)
check_arrow(amp exported exported/exported_module.h)
check_arrow(runtime c c/lockstep.h)
check_arrow(datasets runtime runtime/runtime.h)
check_arrow(runtime datasets datasets/idx_file.h)

# grep's 1 is "found none"; any other code is a failure.
add_test(NAME build.arrows.no_include_by_path COMMAND sh -c
  "grep -rnE '#include \"(\\.\\./|/)' --include=*.h --include=*.cpp collectives amp checkpointing datasets exported runtime c online; test $? -eq 1"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.arrows.no_include_by_path PROPERTIES LABELS build)
