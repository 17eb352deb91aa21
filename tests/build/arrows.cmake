# build.arrows.*: an include against the arrows between rooms does not compile.

function(check_arrow from header)
  string(REGEX REPLACE "/.*" "" to "${header}")
  set(target lockstep_arrow_${from}_${to})
  set(source "${CMAKE_CURRENT_BINARY_DIR}/arrows/${target}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include <lockstep/@header@>\n" @ONLY)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${target} PRIVATE lockstep::${from})
  build_and_check(arrows.${from}_sees_no_${to} ${target})
  set_tests_properties(build.arrows.${from}_sees_no_${to} PROPERTIES
    PASS_REGULAR_EXPRESSION "lockstep/${header}: No such file or directory")
endfunction()

check_arrow(collectives amp/precision.h)
check_arrow(collectives runtime/runtime.h)
check_arrow(amp runtime/runtime.h)
check_arrow(amp checkpointing/snapshot/safetensors_file.h)
check_arrow(checkpointing amp/precision.h)

list(JOIN rooms " " room_list)
# grep's 1 is "found none"; any other code is a failure.
add_test(NAME build.arrows.no_include_by_path COMMAND sh -c
  "grep -rnE '#include \"(\\.\\./|/)' --include=*.h --include=*.cpp ${room_list}; test $? -eq 1"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.arrows.no_include_by_path PROPERTIES LABELS build)
