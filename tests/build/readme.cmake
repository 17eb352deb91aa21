# build.readme, build.first_hour, ...: the blocks of the document in C++ are whole programs that compile and link. The
# pages whose programs also run are in tests/consumer.
# build.documents: commands and links in the documents name things that exist.
# build.document_names: so do the names of tests, files, identifiers and options.

# document_compiles(name file)
function(document_compiles name file)
  set(document "${PROJECT_SOURCE_DIR}/${file}")
  set(block_dir "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${document}")
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/code_blocks.py" "${document}"
      "${block_dir}"
    OUTPUT_VARIABLE blocks OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" blocks "${blocks}")
  add_custom_target(document_${name})
  foreach(file IN LISTS blocks)
    get_filename_component(block "${file}" NAME_WE)
    add_executable(${name}_${block} EXCLUDE_FROM_ALL "${block_dir}/${file}")
    target_link_libraries(${name}_${block} PRIVATE lockstep::lockstep)
    add_dependencies(document_${name} ${name}_${block})
  endforeach()
  build_and_check(${name} document_${name})
endfunction()
document_compiles(readme README.md)
document_compiles(data docs/data.md)
document_compiles(first_hour docs/first-hour.md)
document_compiles(from_ddp docs/from-ddp.md)
document_compiles(contrastive_losses docs/contrastive-losses.md)
document_compiles(ema docs/ema.md)
add_test(NAME build.documents
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/documents.py"
    "${PROJECT_SOURCE_DIR}")
add_test(NAME build.document_names
  COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_CURRENT_SOURCE_DIR}/document_names.py"
    "${PROJECT_SOURCE_DIR}")
set_tests_properties(build.documents build.document_names PROPERTIES LABELS build)
