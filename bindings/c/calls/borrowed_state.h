#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/runtime/trainer.h>

#include <map>
#include <string>

namespace lockstep::c {

/// Arrays of the program that are part of a Trainer's snapshots. A Trainer restores an array as a
/// new tensor; this object copies its values to the program's memory.
class BorrowedState {
 public:
  /// Registers `array` under `name`, and restores it if the Trainer has a saved value for it.
  /// Throws Error (exit code snapshot) if the saved value has another shape or dtype.
  void add(Trainer& trainer, const std::string& name, const at::Tensor& array);
  /// Writes restored values into the program's memory. Errors: as add().
  void write_restored();

 private:
  struct Entry {
    at::Tensor array;  // the program's memory
    at::Tensor value;  // the same until the Trainer restores it: then a new tensor
  };
  static void write_restored(const std::string& name, Entry& entry);

  std::map<std::string, Entry> entries_;  // the Trainer has pointers to the values
};

}  // namespace lockstep::c
