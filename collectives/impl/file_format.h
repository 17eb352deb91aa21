#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string_view>

namespace lockstep::detail {

/// A format of files that a reader is given in place of its own.
struct FileFormat {
  const char* name;    // "torch.save", as in "this is a file of torch.save"
  const char* advice;  // what to do, "unpack it first"
};

/// The format of a file with this beginning, of which the first 512 bytes decide. Null if it is
/// none that is known: texts, and files without a mark of their own. Standard library only.
/// Threads: any.
const FileFormat* known_format(std::string_view beginning);

}  // namespace lockstep::detail
