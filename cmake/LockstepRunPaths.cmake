# Where programs and shared libraries look for others at run time: the one rule for it.
#   in the build tree   LibTorch's folders (LibTorch_LIBRARY_DIRS)
#   installed           1. beside the file, and in the library folder beside its own folder: lockstep's libraries
#                       2. LibTorch's folders as they lie around LibTorch here: what is site-packages/torch/lib and
#                          site-packages/nvidia/cu13/lib here is <installed tree>/../torch/lib and
#                          <installed tree>/../nvidia/cu13/lib there
#                       3. LibTorch's folders on this machine
set(CMAKE_BUILD_RPATH ${LibTorch_LIBRARY_DIRS})

# lockstep_libtorch_folders(variable): LibTorch's folders, without the folder of the build tree that has the link to a
# renamed CUDA run-time. The installed link lies among lockstep's libraries.
function(lockstep_libtorch_folders variable)
  set(folders ${LibTorch_LIBRARY_DIRS})
  get_filename_component(link "${LibTorch_CUDART_LINK}" DIRECTORY)
  list(REMOVE_ITEM folders "${link}")
  set(${variable} ${folders} PARENT_SCOPE)
endfunction()

if(LibTorch_CUDART_LINK AND LOCKSTEP_INSTALL)
  install(FILES "${LibTorch_CUDART_LINK}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT here)
endif()

# lockstep_installed_run_paths(variable [RELOCATABLE]): the list for INSTALL_RPATH. RELOCATABLE leaves part 3 out: what is
# left is the beginning of the whole list, and names nothing of this machine.
function(lockstep_installed_run_paths variable)
  cmake_parse_arguments(paths "RELOCATABLE" "" "" ${ARGN})
  file(RELATIVE_PATH libraries "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set(found "\$ORIGIN" "\$ORIGIN/${libraries}")
  lockstep_libtorch_folders(here)
  get_filename_component(around "${LibTorch_ROOT}" DIRECTORY)
  foreach(folder IN LISTS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR)
    file(RELATIVE_PATH up "/tree/${folder}" "/")
    foreach(path IN LISTS here)
      string(FIND "${path}" "${around}/" at)
      if(at EQUAL 0)
        file(RELATIVE_PATH path "${around}" "${path}")
        list(APPEND found "\$ORIGIN/${up}${path}")
      endif()
    endforeach()
  endforeach()
  if(NOT paths_RELOCATABLE)
    list(APPEND found ${here})
  endif()
  list(REMOVE_DUPLICATES found)
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
lockstep_installed_run_paths(CMAKE_INSTALL_RPATH)
