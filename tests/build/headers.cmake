# build.headers: each header of each room is a translation unit of its own, which sees only what
# its room links, also for itself; one more unit includes all of a room's headers together. They
# compile as C++20 here, as C++17 in the rooms' own sources. Those named -inl.h are for inclusion
# within a namespace.
add_custom_target(lockstep_headers)
foreach(room IN LISTS rooms)
  file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/${room}/*.h")
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$")
  set(sources)
  foreach(header IN LISTS headers)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${header}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <lockstep/@header@>\n" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  list(TRANSFORM headers REPLACE "(.+)" "#include <lockstep/\\1>" OUTPUT_VARIABLE includes)
  list(JOIN includes "\n" includes)
  set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${room}/all_headers.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "@includes@\n" @ONLY)
  list(APPEND sources "${source}")
  add_library(lockstep_headers_${room} OBJECT EXCLUDE_FROM_ALL ${sources})
  get_target_property(libraries lockstep_${room} LINK_LIBRARIES)
  target_link_libraries(lockstep_headers_${room} PRIVATE lockstep::${room} ${libraries})
  target_compile_options(lockstep_headers_${room} PRIVATE -O0 -Werror)
  target_compile_features(lockstep_headers_${room} PRIVATE cxx_std_20)
  add_dependencies(lockstep_headers lockstep_headers_${room})
endforeach()
build_and_check(headers lockstep_headers)
