# The Fortran module needs a Fortran compiler and nothing else; the rest of lockstep needs none.
# Sets LOCKSTEP_FORTRAN_COMPILER to the compiler, or to nothing.
set(LOCKSTEP_FORTRAN AUTO CACHE STRING
  "Fortran module: ON, OFF, or AUTO: where there is a Fortran compiler")
set_property(CACHE LOCKSTEP_FORTRAN PROPERTY STRINGS AUTO ON OFF)

set(LOCKSTEP_FORTRAN_COMPILER)
if(LOCKSTEP_FORTRAN STREQUAL "OFF")
  message(STATUS "Fortran module: none, LOCKSTEP_FORTRAN is OFF")
else()
  include(CheckLanguage)
  check_language(Fortran)
  if(CMAKE_Fortran_COMPILER)
    enable_language(Fortran)
    set(LOCKSTEP_FORTRAN_COMPILER "${CMAKE_Fortran_COMPILER}")
    message(STATUS "Fortran module: ${LOCKSTEP_FORTRAN_COMPILER}")
  elseif(LOCKSTEP_FORTRAN STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_FORTRAN is ON, but there is no Fortran compiler")
  else()
    message(STATUS "Fortran module and its tests: none, there is no Fortran compiler")
  endif()
endif()
