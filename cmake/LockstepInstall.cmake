# cmake --install: static libraries, public headers under include/lockstep/<library>/, the lockstep command
# and the package that find_package(lockstep) reads.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")

get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
set(library_targets)
foreach(library IN LISTS libraries)
  list(APPEND library_targets lockstep_${library})
  get_target_property(folder lockstep_${library} LOCKSTEP_FOLDER)
  get_target_property(headers lockstep_${library} LOCKSTEP_PUBLIC_HEADERS)
  list(TRANSFORM headers PREPEND "${PROJECT_SOURCE_DIR}/${folder}/")
  install(FILES ${headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder}")
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/lockstep.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep")
install(TARGETS lockstep ${library_targets} EXPORT lockstepTargets)
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
