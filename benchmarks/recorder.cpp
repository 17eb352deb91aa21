#include "recorder.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>

namespace lockstep::benchmarks {
namespace {

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
