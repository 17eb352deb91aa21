# build.readme, build.data, build.embedding: the blocks of the document in C++, C and Fortran are whole programs
# that compile and link.
# build.documents: commands and links in the documents name things that exist.
# build.document_names: so do the names of tests, files, identifiers and options.

# document_compiles(name file [library...])
function(document_compiles name file)
  set(document "${PROJECT_SOURCE_DIR}/${file}")
  set(block_dir "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${document}")
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/code_blocks.py" "${document}"
      "${block_dir}"
    OUTPUT_VARIABLE blocks OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" blocks "${blocks}")
  add_custom_target(lockstep_${name})
  foreach(file IN LISTS blocks)
    get_filename_component(block "${file}" NAME_WE)
    set(libraries lockstep::lockstep ${ARGN})
    if(file MATCHES "[.]f90$")
      set(libraries lockstep::fortran MPI::MPI_Fortran)
      if(NOT TARGET lockstep_fortran OR NOT TARGET MPI::MPI_Fortran)
        continue()
      endif()
    endif()
    add_executable(${name}_${block} EXCLUDE_FROM_ALL "${block_dir}/${file}")
    target_link_libraries(${name}_${block} PRIVATE ${libraries})
    add_dependencies(lockstep_${name} ${name}_${block})
  endforeach()
  build_and_check(${name} lockstep_${name})
endfunction()
if(TARGET lockstep_fortran)
  find_package(MPI QUIET COMPONENTS Fortran)
endif()
document_compiles(readme README.md)
document_compiles(data docs/data.md)
document_compiles(embedding docs/embedding.md MPI::MPI_C)
set_tests_properties(build.embedding PROPERTIES FIXTURES_SETUP embedding)
add_test(NAME build.embedding_runs
  COMMAND ${LOCKSTEP_MPIEXEC} ${MPIEXEC_NUMPROC_FLAG} 3 $<TARGET_FILE:embedding_block_1>)
set_tests_properties(build.embedding_runs PROPERTIES
  LABELS mpi TIMEOUT 180 PROCESSORS 2 FIXTURES_REQUIRED embedding
  ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT}" PASS_REGULAR_EXPRESSION "update 200, loss 0[.]0")
add_test(NAME build.embedding_link_runs
  COMMAND ${LOCKSTEP_MPIEXEC} ${MPIEXEC_NUMPROC_FLAG} 3 $<TARGET_FILE:embedding_block_2>)
set_tests_properties(build.embedding_link_runs PROPERTIES
  LABELS mpi TIMEOUT 180 PROCESSORS 2 FIXTURES_REQUIRED embedding
  ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT}"
  PASS_REGULAR_EXPRESSION "samples 800, updates [0-9]+, loss 0[.]0")

add_test(NAME build.documents
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/documents.py"
    "${PROJECT_SOURCE_DIR}")
add_test(NAME build.document_names
  COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_CURRENT_SOURCE_DIR}/document_names.py"
    "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.documents build.document_names PROPERTIES LABELS build)
