#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/inputs/exported/archive/archive.h>

#include <map>
#include <string>

namespace lockstep::exported {

/// Bytes of records, by name: one-dimensional tensors of uint8 on the CPU.
using Records = std::map<std::string, at::Tensor>;

/// Writes a copy of an archive to `path`, with the records of `changed` in place of those of their
/// names. The file appears complete or not at all; `path` may be that of `source`. Throws Error
/// (exit code data) if the file cannot be written.
void rewrite_archive(Archive& source, const std::string& path, const Records& changed);

}  // namespace lockstep::exported
