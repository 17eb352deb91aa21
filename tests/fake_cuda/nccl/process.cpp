#include "process.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace fake_cuda {
namespace {

/// False if there is no such process.
bool read_state(int32_t pid, char* state, uint64_t* started) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return false;
  }
  // The name in parentheses may contain anything; the third field follows it.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  fields >> *state;
  std::string skipped;
  constexpr int kStarted = 22;
  for (int field = 4; field < kStarted; ++field) {
    fields >> skipped;
  }
  fields >> *started;
  return true;
}

}  // namespace

ProcessId this_process() {
  ProcessId self;
  self.pid = getpid();
  char state = 0;
  read_state(self.pid, &state, &self.started);
  return self;
}

bool is_alive(const ProcessId& process) {
  char state = 0;
  uint64_t started = 0;
  return read_state(process.pid, &state, &started) && started == process.started && state != 'Z' &&
         state != 'X';
}

}  // namespace fake_cuda
