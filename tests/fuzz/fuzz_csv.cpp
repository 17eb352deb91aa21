#include <lockstep/inputs/csv_file.h>

#include "fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    const lockstep::CsvFile table(path);
    for (size_t row = 0; row < table.size(); ++row) {
      table.get(row);
    }
    table.numbers(table.columns());
  });
}
