# build.readme, build.data, build.embedding: the C++ blocks of the document are whole programs that compile and link.
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
  foreach(block IN LISTS blocks)
    add_executable(${name}_${block} EXCLUDE_FROM_ALL "${block_dir}/${block}.cpp")
    target_link_libraries(${name}_${block} PRIVATE lockstep::lockstep ${ARGN})
    add_dependencies(lockstep_${name} ${name}_${block})
  endforeach()
  build_and_check(${name} lockstep_${name})
endfunction()
document_compiles(readme README.md)
document_compiles(data docs/data.md)
document_compiles(embedding docs/embedding.md MPI::MPI_C)
set_tests_properties(build.embedding PROPERTIES FIXTURES_SETUP embedding)
add_test(NAME build.embedding_runs
  COMMAND ${LOCKSTEP_MPIEXEC} ${MPIEXEC_NUMPROC_FLAG} 3 $<TARGET_FILE:embedding_block_1>)
set_tests_properties(build.embedding_runs PROPERTIES
  LABELS mpi TIMEOUT 180 PROCESSORS 2 FIXTURES_REQUIRED embedding
  ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT}" PASS_REGULAR_EXPRESSION "update 200, loss 0[.]0")

add_test(NAME build.documents
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/documents.py"
    "${PROJECT_SOURCE_DIR}")
add_test(NAME build.document_names
  COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_CURRENT_SOURCE_DIR}/document_names.py"
    "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.documents build.document_names PROPERTIES LABELS build)
