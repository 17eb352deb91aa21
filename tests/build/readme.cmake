# build.readme: the C++ blocks of README.md are whole programs that compile and link.
# build.documents: commands and links in the documents name things that exist.
# build.document_names: so do the names of tests, files, identifiers and options.
set(readme "${PROJECT_SOURCE_DIR}/README.md")
set(block_dir "${CMAKE_CURRENT_BINARY_DIR}/readme")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${readme}")
execute_process(
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/code_blocks.py" "${readme}"
    "${block_dir}"
  OUTPUT_VARIABLE blocks OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" blocks "${blocks}")

add_custom_target(lockstep_readme)
foreach(block IN LISTS blocks)
  add_executable(readme_${block} EXCLUDE_FROM_ALL "${block_dir}/${block}.cpp")
  target_link_libraries(readme_${block} PRIVATE lockstep::lockstep)
  add_dependencies(lockstep_readme readme_${block})
endforeach()
build_and_check(readme lockstep_readme)

add_test(NAME build.documents
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/documents.py"
    "${PROJECT_SOURCE_DIR}")
add_test(NAME build.document_names
  COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_CURRENT_SOURCE_DIR}/document_names.py"
    "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.documents build.document_names PROPERTIES LABELS build)
