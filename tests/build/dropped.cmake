# build.dropped: the compiler warns of each result and guard that must not be dropped.
set(_includes "")
string(REPLACE cxx_std_ c++ _standard "${_torch_standard}")  # see umbrella.cmake
foreach(target LibTorch::torch MPI::MPI_C)
  get_target_property(_directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
  foreach(directory IN LISTS _directories)
    list(APPEND _includes -isystem "${directory}")
  endforeach()
endforeach()
add_test(NAME build.dropped COMMAND "${Python3_EXECUTABLE}" -B
  "${CMAKE_CURRENT_SOURCE_DIR}/dropped.py" "${CMAKE_CURRENT_SOURCE_DIR}/dropped.cpp"
  "${CMAKE_CXX_COMPILER}" "-std=${_standard}"
  ${_lockstep_includes} ${_includes})  # of umbrella.cmake
set_tests_properties(build.dropped PROPERTIES LABELS build TIMEOUT 300)
