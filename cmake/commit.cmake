# cmake -DSOURCE=<repository> -DHEADER=<file> -P commit.cmake
# Writes the commit of the sources, for `lockstep --version`; the file changes only if the commit does.
cmake_minimum_required(VERSION 3.22)
find_package(Git QUIET)
set(commit)
if(GIT_FOUND AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --short=12 HEAD WORKING_DIRECTORY "${SOURCE}"
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND "${GIT_EXECUTABLE}" diff-index --quiet HEAD -- WORKING_DIRECTORY "${SOURCE}"
    RESULT_VARIABLE changed ERROR_QUIET)
endif()
if(NOT commit)
  set(commit "unknown")
elseif(NOT changed EQUAL 0)
  string(APPEND commit " and changes")
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#pragma once\n#define LOCKSTEP_COMMIT \"${commit}\"\n" @ONLY)
