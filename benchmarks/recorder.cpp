#include "recorder.h"

#include <hwy/targets.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string_view>

namespace lockstep::benchmarks {
namespace {

/// run.py --vectors avx2: lockstep's kernels as a processor without AVX-512 runs them.
[[maybe_unused]] const bool limited_to_avx2 = [] {
  const char* vectors = std::getenv("LOCKSTEP_BENCH_VECTORS");
  const bool limited = vectors != nullptr && std::string_view(vectors) == "avx2";
  if (limited) {
    hwy::DisableTargets(HWY_AVX2 - 1);  // a wider target has a lower bit
  }
  return limited;
}();

void print(std::ostream& out, const std::vector<double>& values) {
  out << "[";
  for (size_t i = 0; i < values.size(); ++i) {
    out << (i == 0 ? "" : ",") << values[i];
  }
  out << "]";
}

}  // namespace

double Series::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Series::write() const {
  std::ostringstream line;
  line << std::fixed << std::setprecision(9);
  line << "{\"name\":\"" << name_ << "\",\"variant\":\"" << variant_ << "\",\"begin\":";
  print(line, begin_);
  line << ",\"end\":";
  print(line, end_);
  for (const auto& [key, value] : notes_) {
    line << ",\"" << key << "\":" << value;
  }
  line << "}\n";

  const char* folder = std::getenv("LOCKSTEP_BENCH_RECORDS");
  if (folder == nullptr) {
    std::cout << line.str() << std::flush;
    return;
  }
  std::ofstream file(std::string(folder) + "/" + std::to_string(getpid()) + ".jsonl",
                     std::ios::app);
  file << line.str();
}

}  // namespace lockstep::benchmarks
