# cmake --install: static libraries, headers under include/lockstep/<room>/, the lockstep command
# and the package that find_package(lockstep) reads.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")

get_property(rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)
set(room_targets)
foreach(room IN LISTS rooms)
  list(APPEND room_targets lockstep_${room})
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${room}/"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${room}" FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/lockstep.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep")
install(TARGETS lockstep ${room_targets} EXPORT lockstepTargets)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${package_dir}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
  "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/LockstepDependencies.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
  DESTINATION "${package_dir}")
