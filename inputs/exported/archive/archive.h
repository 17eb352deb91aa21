#pragma once

#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <lockstep/collectives/check.h>

#include <cstddef>
#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::exported {

/// The bytes of one record of an archive.
struct Record {
  at::DataPtr data;
  size_t size = 0;
};

/// An archive of torch.export.save(): a zip file whose records are stored, not compressed.
/// LibTorch's own reader finds the records; it does not check their CRC-32, so this class does.
/// Errors: Error (exit code data) with the file and the record.
class Archive {
 public:
  explicit Archive(std::string path);

  /// The names of the programs in the archive; torch.export.save() writes one, "model".
  const std::vector<std::string>& programs() const { return programs_; }
  /// The names of all records.
  const std::vector<std::string>& records() const { return records_; }
  Record read(const std::string& name);
  std::string text(const std::string& name);
  nlohmann::json json(const std::string& name);
  bool has(const std::string& name);
  const std::string& path() const { return path_; }

 private:
  /// Runs `action` and converts exceptions of LibTorch's reader to Error.
  template <typename Action>
  auto guarded(const Action& action) -> decltype(action());
  void open();
  uint32_t stored_crc(const std::string& name, size_t size);
  std::string bytes_at(size_t offset, size_t count);

  std::string path_;
  std::ifstream file_;
  size_t file_size_ = 0;
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  std::vector<std::string> records_;
  std::vector<std::string> programs_;
};

/// Throws Error (exit code data): `path`: parts.
template <typename... Parts>
[[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  detail::throw_error(c10::str("ExportedModule: ", path, ": ", parts...), ExitCode::data);
}

}  // namespace lockstep::exported
