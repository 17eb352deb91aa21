#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cubin.h"
#include "instruction.h"
#include "lanes.h"

namespace fake_cuda {

// Where generic addresses of shared and of local memory begin; no memory of the host lies there.
constexpr uint64_t kSharedWindow = 0x6000'0000'0000;
constexpr uint64_t kLocalWindow = 0x6100'0000'0000;

/// A kernel whose code has been read.
struct Kernel {
  Cubin::KernelInfo info;
  Program program;
  std::vector<char> bank3, bank4;
  std::vector<std::string> driver_functions;
  /// `__constant__` variables: bank 3 holds what their memory does when the kernel begins.
  struct Constant {
    size_t offset = 0;
    size_t bytes = 0;
    const void* memory = nullptr;
  };
  std::vector<Constant> constants;
  size_t local_bytes = 0;  // of a thread
};

/// One execution of a kernel.
class Launch {
 public:
  Launch(const Kernel& kernel, dim3 grid, dim3 block, const std::vector<char>& bank0,
         size_t dynamic_shared_bytes);

  void run();

  const Kernel& kernel() const { return kernel_; }
  const Program& program() const { return kernel_.program; }
  const Lanes* literals() const { return literals_.data(); }
  dim3 grid() const { return grid_; }
  dim3 block() const { return block_; }
  size_t shared_bytes() const { return shared_bytes_; }
  size_t local_bytes() const { return kernel_.local_bytes; }
  size_t constant_bytes(int number) const { return bank(number).size(); }
  /// 4 bytes of a constant bank; zeros behind its end.
  uint32_t constant(int bank, uint32_t offset) const;
  int64_t instructions() const { return instructions_; }

  /// Constant bank 0: sizes, windows and the parameters, which are copied.
  static std::vector<char> bank0_of(const Kernel& kernel, dim3 grid, dim3 block, void** parameters);

 private:
  const std::vector<char>& bank(int number) const;

  const Kernel& kernel_;
  dim3 grid_, block_;
  const std::vector<char>& bank0_;
  std::vector<char> bank3_;
  size_t shared_bytes_;
  std::vector<Lanes> literals_;
  int64_t instructions_ = 0;
};

}  // namespace fake_cuda
