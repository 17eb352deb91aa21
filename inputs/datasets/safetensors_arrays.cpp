#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/safetensors_arrays.h>

namespace lockstep {
namespace {

/// Uses the reader of snapshots; its errors get the exit code data.
std::vector<at::Tensor> read(const std::string& path, const std::vector<std::string>& names) {
  try {
    const snapshot::SafetensorsFile file(path);
    std::vector<at::Tensor> tensors;
    tensors.reserve(names.size());
    for (const std::string& name : names) {
      tensors.push_back(file.tensor(name));
    }
    return tensors;
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::data);
  }
}

}  // namespace

SafetensorsArrays::SafetensorsArrays(const std::string& path, const std::vector<std::string>& names)
    : tensors_(read(path, names)) {
  LOCKSTEP_CHECK(!names.empty(), "SafetensorsArrays: no tensor was named, expected one or more");
  for (size_t i = 0; i < names.size(); ++i) {
    LOCKSTEP_CHECK_CODE(tensors_[i].dim() >= 1, ExitCode::data, path, ": tensor \"", names[i],
                        "\" has no dimension, expected a first one of samples");
    LOCKSTEP_CHECK_CODE(tensors_[i].size(0) == tensors_[0].size(0), ExitCode::data, path,
                        ": tensor \"", names[i], "\" has ", tensors_[i].size(0), " rows, expected ",
                        tensors_[0].size(0), " as \"", names[0], "\" has");
  }
}

std::vector<at::Tensor> SafetensorsArrays::get(size_t index) const {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors_) {
    rows.push_back(tensor.select(0, static_cast<int64_t>(index)).clone());
  }
  return rows;
}

}  // namespace lockstep
