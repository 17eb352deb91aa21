#include <lockstep/inputs/exported/archive/archive_writer.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep::exported {

namespace {

constexpr uint64_t kFileVersion = 6;  // as torch.export.save() writes it

/// LibTorch's writer adds these records itself.
bool added_by_writer(const std::string& record) {
  return record.rfind(".data/", 0) == 0 || record == "byteorder" || record == "version";
}

void write_records(Archive& source, const Records& changed,
                   caffe2::serialize::PyTorchStreamWriter& writer) {
  writer.setMinVersion(kFileVersion);
  for (const std::string& name : source.records()) {
    if (added_by_writer(name)) {
      continue;
    }
    if (const auto found = changed.find(name); found != changed.end()) {
      const at::Tensor& bytes = found->second;
      writer.writeRecord(name, bytes.const_data_ptr(), static_cast<size_t>(bytes.numel()));
    } else {
      const Record record = source.read(name);
      writer.writeRecord(name, record.data.get(), record.size);
    }
  }
  writer.writeEndOfFile();
}

}  // namespace

void rewrite_archive(Archive& source, const std::string& path, const Records& changed) {
  const std::string partial = path + ".partial";
  std::error_code error;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  try {
    // The writer must not fail: its destructor writes, too. The state of the file tells.
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
      file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
      return size;
    });
    write_records(source, changed, writer);
  } catch (...) {
    std::filesystem::remove(partial, error);
    throw;
  }
  file.close();
  if (file.good()) {
    std::filesystem::rename(partial, path, error);
  }
  if (!file.good() || error) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    refuse(path, "cannot write the file", error ? ": " + error.message() : "",
           ". Look for the folder, its rights and its free space");
  }
}

}  // namespace lockstep::exported
