#include "launch.h"

#include <algorithm>
#include <cstring>

#include "block.h"

namespace fake_cuda {

Launch::Launch(const Kernel& kernel, dim3 grid, dim3 block, const std::vector<char>& bank0,
               size_t dynamic_shared_bytes)
    : kernel_(kernel),
      grid_(grid),
      block_(block),
      bank0_(bank0),
      bank3_(kernel.bank3),
      shared_bytes_(kernel.info.attributes.shared_bytes + dynamic_shared_bytes),
      literals_(2 * kernel.program.literals.size() + kZeros) {
  for (const Kernel::Constant& constant : kernel.constants) {
    if (constant.offset + constant.bytes <= bank3_.size()) {
      memcpy(bank3_.data() + constant.offset, constant.memory, constant.bytes);
    }
  }
  for (size_t n = 0; n < program().literals.size(); ++n) {
    const Literal& literal = program().literals[n];
    const bool is_constant = literal.bank >= 0;
    const uint32_t low = is_constant ? constant(literal.bank, literal.offset) : literal.low;
    const uint32_t high = is_constant ? constant(literal.bank, literal.offset + 4) : literal.high;
    std::fill(literals_[2 * n].v, literals_[2 * n].v + kLanes, low);
    std::fill(literals_[2 * n + 1].v, literals_[2 * n + 1].v + kLanes, high);
  }
}

const std::vector<char>& Launch::bank(int number) const {
  switch (number) {
    case 0:
      return bank0_;
    case 2:
      return kernel_.info.bank2;
    case 3:
      return bank3_;
    default:
      return kernel_.bank4;
  }
}

uint32_t Launch::constant(int number, uint32_t offset) const {
  const std::vector<char>& bytes = bank(number);
  uint32_t value = 0;
  if (offset < bytes.size()) {
    memcpy(&value, bytes.data() + offset, std::min<size_t>(4, bytes.size() - offset));
  }
  return value;
}

void Launch::run() {
  Block block(*this);
  for (unsigned z = 0; z < grid_.z; ++z) {
    for (unsigned y = 0; y < grid_.y; ++y) {
      for (unsigned x = 0; x < grid_.x; ++x) {
        block.run(dim3(x, y, z));
      }
    }
  }
  instructions_ = block.instructions();
}

std::vector<char> Launch::bank0_of(const Kernel& kernel, dim3 grid, dim3 block, void** parameters) {
  const Cubin::KernelInfo& info = kernel.info;
  std::vector<char> bank(size_t(std::max(0x160, info.parameter_base) + info.parameter_bytes));
  const uint32_t sizes[6] = {block.x, block.y, block.z, grid.x, grid.y, grid.z};
  memcpy(bank.data(), sizes, sizeof sizes);
  memcpy(bank.data() + 0x18, &kSharedWindow, 8);
  memcpy(bank.data() + 0x20, &kLocalWindow, 8);
  const uint32_t top_of_stack = uint32_t(kernel.local_bytes);
  memcpy(bank.data() + 0x28, &top_of_stack, 4);
  for (size_t n = 0; n < info.parameters.size(); ++n) {
    const Cubin::Parameter& parameter = info.parameters[n];
    const size_t begin = size_t(info.parameter_base + parameter.offset);
    if (begin + size_t(parameter.bytes) > bank.size()) {
      throw DeviceFault(cudaErrorInvalidKernelImage,
                        "the parameters of " + kernel.program.kernel + " do not fit");
    }
    memcpy(bank.data() + begin, parameters[n], size_t(parameter.bytes));
  }
  return bank;
}

}  // namespace fake_cuda
