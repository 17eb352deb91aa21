// Runs one kernel of the machine code in FAKE_CUDA_CODE, without a CUDA runtime:
//
//   run_kernel KERNEL GRID BLOCK SHARED ARGUMENT...
//   run_kernel --opcodes
//   run_kernel --known LISTING...
//
// GRID and BLOCK: x[,y[,z]]. SHARED: bytes of dynamic shared memory. An argument is one parameter:
//   in=FILE         memory with the file's content
//   out=FILE:BYTES  memory of that size (fresh memory is 0xff), written to the file afterwards
//   inout=FILE      memory with the file's content, written back afterwards
//   u8= s8= u16= s16= u32= s32= u64= s64=NUMBER, f32= f64=NUMBER, hex=BYTES (a structure)
// Exit code 0; 1 for a fault of the kernel or code that the machine refuses, with its error's name
// on stderr; 2 for bad arguments. FAKE_CUDA_LOG=1 prints instructions and time.
// --opcodes: the names of all instructions that the machine knows.
// --known: reads what "cuobjdump -sass" printed of whole files, and counts the kernels whose
// instructions the machine knows.
//

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../memory/host_touches.h"
#include "../memory/memory.h"
#include "kernels.h"
#include "opcodes.h"
#include "parser.h"

namespace fake_cuda {

// The runtime has these; without streams there are no races.
void read_bytes(const void* memory, size_t bytes) {
  check_range(memory, bytes, "reads");
}
void write_bytes(const void* memory, size_t bytes) {
  check_range(memory, bytes, "writes");
}

namespace {

struct BadArguments : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw BadArguments("cannot read " + path);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

dim3 size_in(const std::string& text) {
  unsigned sizes[3] = {1, 1, 1};
  std::istringstream parts(text);
  std::string part;
  for (int n = 0; n < 3 && std::getline(parts, part, ','); ++n) {
    sizes[n] = unsigned(std::stoul(part, nullptr, 0));
  }
  return dim3(sizes[0], sizes[1], sizes[2]);
}

/// One parameter of the kernel.
class Argument {
 public:
  explicit Argument(const std::string& text);
  void* value() { return value_.data(); }
  /// Writes memory back to its file.
  void save() const;

 private:
  void allocate(const std::string& content, size_t bytes);
  template <typename T>
  void set(T number) {
    value_.resize(sizeof number);
    memcpy(value_.data(), &number, sizeof number);
  }

  std::vector<char> value_;
  std::string file_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

Argument::Argument(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw BadArguments("the argument " + text);
  }
  const std::string kind = text.substr(0, equals), value = text.substr(equals + 1);
  const auto natural = [&] { return std::stoull(value, nullptr, 0); };
  const auto integer = [&] { return std::stoll(value, nullptr, 0); };
  if (kind == "in" || kind == "inout") {
    const std::string content = content_of(value);
    allocate(content, content.size());
    file_ = kind == "inout" ? value : "";
  } else if (kind == "out") {
    const size_t colon = value.rfind(':');
    if (colon == std::string::npos) {
      throw BadArguments("out=FILE:BYTES");
    }
    file_ = value.substr(0, colon);
    allocate("", std::stoul(value.substr(colon + 1)));
  } else if (kind == "u8") {
    set(uint8_t(natural()));
  } else if (kind == "s8") {
    set(int8_t(integer()));
  } else if (kind == "u16") {
    set(uint16_t(natural()));
  } else if (kind == "s16") {
    set(int16_t(integer()));
  } else if (kind == "u32") {
    set(uint32_t(natural()));
  } else if (kind == "s32") {
    set(int32_t(integer()));
  } else if (kind == "u64") {
    set(uint64_t(natural()));
  } else if (kind == "s64") {
    set(int64_t(integer()));
  } else if (kind == "f32") {
    set(std::stof(value));
  } else if (kind == "f64") {
    set(std::stod(value));
  } else if (kind == "hex") {
    for (size_t n = 0; n + 1 < value.size(); n += 2) {
      value_.push_back(char(std::stoi(value.substr(n, 2), nullptr, 16)));
    }
  } else {
    throw BadArguments("the argument " + text);
  }
}

void Argument::allocate(const std::string& content, size_t bytes) {
  if (allocate_device(&memory_, std::max<size_t>(bytes, 1), 0) != cudaSuccess) {
    throw BadArguments("no memory");
  }
  bytes_ = bytes;
  const DeviceScope scope;
  memcpy(memory_, content.data(), content.size());
  set(memory_);
}

void Argument::save() const {
  if (file_.empty()) {
    return;
  }
  const DeviceScope scope;
  const std::string content(static_cast<const char*>(memory_), bytes_);
  std::ofstream(file_, std::ios::binary) << content;
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 4) {
    throw BadArguments("KERNEL GRID BLOCK SHARED ARGUMENT...");
  }
  std::vector<Argument> arguments;
  for (size_t n = 4; n < words.size(); ++n) {
    arguments.emplace_back(words[n]);
  }
  std::vector<void*> parameters;
  for (Argument& argument : arguments) {
    parameters.push_back(argument.value());
  }
  parameters.resize(parameters.size() + 1);
  const Work work = prepare_launch(words[0], size_in(words[1]), size_in(words[2]),
                                   parameters.data(), std::stoul(words[3]));
  const auto begin = std::chrono::steady_clock::now();
  {
    const DeviceScope scope;
    work();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (setting("FAKE_CUDA_LOG", 0L) != 0) {
    fprintf(stderr, "%ld instructions of warps in %.4f s\n", instructions_executed(), took.count());
  }
  for (const Argument& argument : arguments) {
    argument.save();
  }
  return 0;
}

/// Counts the kernels of listings that the parser takes, and the reasons of the others.
int count_known(const std::vector<std::string>& listings) {
  constexpr int kRegisters = 255;
  int known = 0, all = 0;
  std::map<std::string, int> refused;
  const auto parse = [&](const std::string& kernel, const std::string& text) {
    if (kernel.empty()) {
      return;
    }
    ++all;
    try {
      parse_program(kernel, text, kRegisters);
      ++known;
    } catch (const DeviceFault& fault) {
      const std::string why = fault.what();
      if (refused[why.substr(0, why.find(" in \""))]++ == 0) {
        std::cout << why << '\n';
      }
    }
  };
  for (const std::string& listing : listings) {
    std::ifstream lines(listing);
    std::string kernel, text;
    for (std::string line; std::getline(lines, line);) {
      const size_t name = line.find("Function : ");
      if (name == std::string::npos) {
        text += line + '\n';
        continue;
      }
      parse(kernel, text);
      kernel = line.substr(name + 11);
      text.clear();
    }
    parse(kernel, text);
  }
  for (const auto& [why, times] : refused) {
    std::cout << times << " kernels: " << why << '\n';
  }
  std::cout << known << " of " << all << " kernels are known\n";
  return known == all ? 0 : 1;
}

int run_main(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "--opcodes") {
    for (const Opcode& opcode : all_opcodes()) {
      std::cout << opcode.name << '\n';
    }
    return 0;
  }
  if (!words.empty() && words[0] == "--known") {
    return count_known({words.begin() + 1, words.end()});
  }
  return run(words);
}

}  // namespace
}  // namespace fake_cuda

int main(int count, char** words) {
  try {
    return fake_cuda::run_main({words + 1, words + count});
  } catch (const fake_cuda::DeviceFault& fault) {
    std::cerr << "error " << int(fault.code) << ": " << fault.what() << '\n';
    return 1;
  } catch (const std::exception& wrong) {
    std::cerr << wrong.what() << '\n';
    return 2;
  }
}
