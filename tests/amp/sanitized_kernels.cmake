# The kernels under sanitizers, in every build: only they and their test are compiled for it.
if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
  return()  # all of it has a sanitizer already
endif()

# Where the system spreads addresses wider than ThreadSanitizer knows, its programs need them fixed.
set(fixed_addresses sh -c
  "setarch -R true 2>/dev/null && exec setarch -R \"$0\" \"$@\" || exec \"$0\" \"$@\"")

# lockstep_add_sanitized_kernels(name emulated_cuda/races_*.cpp sanitizers)
function(lockstep_add_sanitized_kernels name races sanitizers)
  set(flags -fsanitize=${sanitizers} -fno-sanitize-recover=all -g1)
  lockstep_add_emulated_kernels(kernels_${name} ${races} ${flags})
  add_executable(amp_${name} kernel_launches_test.cpp)
  target_compile_options(amp_${name} PRIVATE ${flags})
  target_link_options(amp_${name} PRIVATE ${flags})
  target_include_directories(amp_${name} PRIVATE
    "${PROJECT_BINARY_DIR}/include/own/amp" "${PROJECT_BINARY_DIR}/include/amp" "${PROJECT_BINARY_DIR}/include/collectives")
  target_link_libraries(amp_${name} PRIVATE kernels_${name} GTest::gtest_main lockstep_internal)
  add_test(NAME amp.kernel_${name}
    COMMAND ${fixed_addresses} $<TARGET_FILE:amp_${name}> --gtest_brief=1)
  set_tests_properties(amp.kernel_${name} PROPERTIES LABELS unit TIMEOUT 120)
endfunction()
lockstep_add_sanitized_kernels(races emulated_cuda/races_reported.cpp thread)
lockstep_add_sanitized_kernels(bounds emulated_cuda/races_ignored.cpp address,undefined)

# That races are found.
add_executable(amp_racing_kernels racing_kernels.cpp emulated_cuda/races_reported.cpp)
target_compile_options(amp_racing_kernels PRIVATE -fsanitize=thread -g1)
target_link_options(amp_racing_kernels PRIVATE -fsanitize=thread)
target_link_libraries(amp_racing_kernels PRIVATE emulated_cuda lockstep_internal)
foreach(where shared blocks warp)
  add_test(NAME amp.kernel_races.found.${where}
    COMMAND ${fixed_addresses} $<TARGET_FILE:amp_racing_kernels> ${where})
  set_tests_properties(amp.kernel_races.found.${where} PROPERTIES LABELS unit TIMEOUT 60
    PASS_REGULAR_EXPRESSION "ThreadSanitizer: data race")
endforeach()
