#pragma once

#include <string_view>
#include <vector>

#include "instruction.h"

namespace fake_cuda {

/// An instruction that the machine knows. What the table does not list is refused.
struct Opcode {
  const char* name;
  /// Modifiers that change what it does, separated by spaces.
  const char* modifiers;
  /// Modifiers that change nothing here: orders of memory, caches, hints, other names.
  const char* ignored;
  /// The operands in the order of the text; several possibilities are separated by '|'. Capital:
  /// must be there, small: may be.
  ///   D   register that is written              F G  predicate that is written
  ///   A B C  value that is read                 W    the same as C, but no immediate
  ///   P Q R  predicate that is read             M    address of memory
  ///   K   place in a constant bank              N O  number
  ///   T   place in the code                     H    convergence barrier
  ///   S   special register                      X    all predicates ("PR")
  ///   *   the rest is ignored
  const char* operands;
  Execute execute;
};

const Opcode* opcode_of(std::string_view name);
const std::vector<Opcode>& all_opcodes();

}  // namespace fake_cuda
