#include "report.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>

#include "../common/faults.h"
#include "../memory/memory.h"
#include "../memory/races.h"
#include "contexts.h"
#include "errors.h"
#include "work_queue.h"

namespace fake_cuda {

namespace {

struct Kernels {
  std::mutex mutex;
  std::map<std::string, long> launches;
};

Kernels& kernels() {
  static auto& made = *new Kernels;
  return made;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + '"';
}

std::string members(const std::map<std::string, long>& numbers, const char* indent) {
  std::string out;
  for (const auto& [name, number] : numbers) {
    out += (out.empty() ? "" : ",") + std::string("\n") + indent + quoted(name) + ": " +
           std::to_string(number);
  }
  return out;
}

void write_report() {
  std::string path = setting("FAKE_CUDA_REPORT", "");
  if (path.empty() || contexts().empty()) {
    return;
  }
  if (const size_t at = path.find("%p"); at != std::string::npos) {
    path.replace(at, 2, std::to_string(getpid()));
  }
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "fake cuda: cannot write the report %s\n", path.c_str());
    return;
  }
  std::fputs(report().c_str(), file);
  std::fclose(file);
}

/// The library's destructors run after those of the program and of LibTorch, which may call CUDA.
/// A forked child has no device's thread to stop.
struct AtExit {
  ~AtExit() {
    if (!contexts().empty() && getpid() == process) {
      WorkQueue::get().stop();
      write_report();
    }
  }
  int process = getpid();
} at_exit;

}  // namespace

void count_kernel(const std::string& kernel) {
  Kernels& all = kernels();
  std::lock_guard lock(all.mutex);
  ++all.launches[kernel];
}

std::string report() {
  std::ostringstream out;
  std::map<std::string, long> numbers = counts();
  const MemoryCounts memory = memory_counts();
  numbers["device allocations"] = memory.device_allocations;
  numbers["host allocations"] = memory.host_allocations;
  numbers["releases"] = memory.releases;
  numbers["live allocations"] = memory.live;
  numbers["races"] = races_found();
  out << "{\n  \"process\": " << getpid()
      << ",\n  \"error\": " << quoted(cudaGetErrorName(sticky_error())) << ",\n  \"contexts\": [";
  const char* separator = "";
  for (const Context& context : contexts()) {
    out << separator << "\n    {\"device\": " << context.device
        << ", \"thread\": " << context.thread
        << ", \"main_thread\": " << (context.is_main_thread ? "true" : "false")
        << ", \"call\": " << quoted(context.call) << "}";
    separator = ",";
  }
  out << "\n  ],\n  \"counts\": {" << members(numbers, "    ") << "\n  },\n  \"kernels\": {";
  {
    Kernels& all = kernels();
    std::lock_guard lock(all.mutex);
    out << members(all.launches, "    ");
  }
  out << "\n  }\n}\n";
  return out.str();
}

}  // namespace fake_cuda
