#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels.h"

/// The machine code of one translation unit: an ELF file whose sections NVIDIA's assembler makes.
namespace fake_cuda {

class Cubin {
 public:
  /// Reads the file. Throws DeviceFault if it is none.
  explicit Cubin(const std::string& path);

  struct Parameter {
    int offset = 0;
    int bytes = 0;
  };
  struct KernelInfo {
    KernelAttributes attributes;
    std::vector<Parameter> parameters;
    int parameter_base = 0;   // in constant bank 0
    int parameter_bytes = 0;  // of all
    std::vector<char> bank2;  // the kernel's own constants
    std::string_view code;
  };
  /// Throws DeviceFault if the kernel is not here.
  KernelInfo kernel(const std::string& name) const;

  struct Variable {
    std::string name;
    int section = 0;
    uint64_t offset = 0;  // in its section
    size_t bytes = 0;
    bool is_constant = false;
    std::string_view content;  // empty: zeros
  };
  /// The variables that the file defines: `__device__`, `__constant__`, and texts of assertions.
  std::vector<Variable> variables() const;

  /// Gives a variable (by its place in variables()) its memory, before constants() is called.
  using Places = std::vector<void*>;
  /// Writes the addresses that variables hold at the begin.
  void write_addresses(const Places& places) const;
  /// Constant banks 3 and 4: the program's constants, and addresses of variables and functions.
  std::vector<char> bank3() const;
  std::vector<char> bank4(const Places& places) const;
  /// What bank 4 holds for a function of the driver: the number of its name in driver_functions(),
  /// added to kDriverFunctions.
  static constexpr uint64_t kDriverFunctions = 0xdead0000;
  std::vector<std::string> driver_functions() const;

  const std::string& path() const { return path_; }

 private:
  struct Section {
    std::string name;
    uint32_t type = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t info = 0;
  };
  struct Symbol {
    std::string name;
    uint64_t value = 0;
    uint64_t bytes = 0;
    int section = 0;
    int type = 0;
  };
  template <typename T>
  T at(uint64_t offset) const;
  std::string_view content(const Section& section) const;
  const Section* find(const std::string& name) const;
  /// Calls visit(offset, address) for each address that a section holds.
  template <typename Visit>
  void visit_addresses(const std::string& section, const Places& places, Visit visit) const;
  uint64_t address_of(const Symbol& symbol, uint64_t addend, const Places& places) const;
  void read_symbols();
  void read_attributes(const Section& section, KernelInfo& info) const;
  size_t stack_of(const std::string& kernel) const;

  std::string path_;
  std::string file_;
  std::vector<Section> sections_;
  std::map<std::string, int> by_name_;
  std::vector<Symbol> symbols_;
};

}  // namespace fake_cuda
