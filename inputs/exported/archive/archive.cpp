#include <lockstep/collectives/impl/bounded_json.h>
#include <lockstep/collectives/impl/file_format.h>
#include <lockstep/inputs/exported/archive/archive.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

namespace lockstep::exported {

namespace {

constexpr size_t kLocalHeader = 30;  // bytes of a local file header without its names

uint32_t little_endian(const std::string& bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

uint32_t crc_of(const Record& record) {
  return static_cast<uint32_t>(
      crc32_z(0, static_cast<const Bytef*>(record.data.get()), record.size));
}

/// A graph of 250,000 nodes, in as many nested graphs as torch.export writes.
detail::JsonLimits program_limits() {
  detail::JsonLimits limits;
  limits.depth = 256;
  limits.values = 50'000'000;
  return limits;
}

/// "train" of "models/train.json"; empty for any other record.
std::string program_name(const std::string& record) {
  const std::string folder = "models/";
  const std::string ending = ".json";
  if (record.size() <= folder.size() + ending.size() || record.rfind(folder, 0) != 0 ||
      record.compare(record.size() - ending.size(), ending.size(), ending) != 0) {
    return "";
  }
  return record.substr(folder.size(), record.size() - folder.size() - ending.size());
}

}  // namespace

template <typename Action>
auto Archive::guarded(const Action& action) -> decltype(action()) {
  try {
    return action();
  } catch (const c10::Error& error) {
    refuse(path_, "the file is damaged: ", error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    refuse(path_, "the file is damaged: a record claims more memory than there is");
  }
}

Archive::Archive(std::string path) : path_(std::move(path)) {
  file_.open(path_, std::ios::binary | std::ios::ate);
  if (!file_.good()) {
    refuse(path_, "cannot open the file. Write it in Python with torch.export.save(program, path)");
  }
  const auto end = static_cast<std::streamoff>(file_.tellg());
  file_size_ = end > 0 ? static_cast<size_t>(end) : 0;
  const std::string beginning = bytes_at(0, std::min<size_t>(512, file_size_));
  const auto* format = detail::known_format(beginning);
  if (format != nullptr && beginning.substr(0, 2) != "PK") {
    refuse(path_, "this is a file of ", format->name,
           "; write the program in Python with torch.export.save(program, path)");
  }
  guarded([&] { open(); });
  records_ = guarded([&] { return reader_->getAllRecords(); });
  for (const std::string& record : records_) {
    if (const std::string name = program_name(record); !name.empty()) {
      programs_.push_back(name);
    }
  }
  if (programs_.empty()) {
    const bool script =
        std::any_of(records_.begin(), records_.end(),
                    [](const std::string& record) { return record.rfind("code/", 0) == 0; });
    refuse(path_, script ? "this is a TorchScript archive: read it with torch::jit::load"
                         : "the archive holds no program. Write it with torch.export.save, not "
                           "with torch.save");
  }
  if (has("byteorder") && text("byteorder") != "little") {
    refuse(path_, "the archive was written on a big-endian machine: export on another one");
  }
}

/// Torch before 2.9 wrote records that lie in no folder, which LibTorch's reader does not open.
void Archive::open() {
  constexpr size_t directory = size_t{1} << 16;
  try {
    reader_ = std::make_unique<caffe2::serialize::PyTorchStreamReader>(path_);
  } catch (const c10::Error&) {
    const size_t count = std::min(directory, file_size_);
    if (bytes_at(file_size_ - count, count).find("serialized_exported_program.json") !=
        std::string::npos) {
      refuse(path_,
             "the archive has the layout of a torch before 2.9. Export the model again with "
             "the torch that this program links");
    }
    throw;
  }
}

bool Archive::has(const std::string& name) {
  return guarded([&] { return reader_->hasRecord(name); });
}

std::string Archive::bytes_at(size_t offset, size_t count) {
  std::string bytes(count, '\0');
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(offset));
  if (offset > file_size_ || count > file_size_ - offset ||
      !file_.read(bytes.data(), static_cast<std::streamsize>(count))) {
    refuse(path_, "the file is truncated at byte ", offset);
  }
  return bytes;
}

/// The CRC is in the local header, or, where bit 3 of its flags is set, after the data.
uint32_t Archive::stored_crc(const std::string& name, size_t size) {
  const std::string header =
      bytes_at(guarded([&] { return reader_->getRecordHeaderOffset(name); }), kLocalHeader);
  if ((little_endian(header, 6, 2) & 8U) == 0) {
    return little_endian(header, 14, 4);
  }
  const size_t begin = guarded([&] { return reader_->getRecordOffset(name); });
  if (begin > file_size_ || size > file_size_ - begin) {
    refuse(path_, "the record ", name, " is truncated");
  }
  const std::string descriptor = bytes_at(begin + size, 8);
  const bool marked = little_endian(descriptor, 0, 4) == 0x08074b50U;
  return little_endian(descriptor, marked ? 4 : 0, 4);
}

Record Archive::read(const std::string& name) {
  if (!has(name)) {
    refuse(path_, "the record ", name, " is missing");
  }
  const size_t claimed = guarded([&] { return reader_->getRecordSize(name); });
  if (claimed > file_size_) {
    refuse(path_, "the record ", name, " claims ", claimed, " bytes, the file has ", file_size_);
  }
  Record record;
  std::tie(record.data, record.size) = guarded([&] { return reader_->getRecord(name); });
  const uint32_t expected = stored_crc(name, record.size);
  if (crc_of(record) != expected) {
    refuse(path_, "the record ", name,
           " is damaged: its CRC-32 is not the stored one. Copy or "
           "export the file again");
  }
  return record;
}

std::string Archive::text(const std::string& name) {
  const Record record = read(name);
  return {static_cast<const char*>(record.data.get()), record.size};
}

nlohmann::json Archive::json(const std::string& name) {
  try {
    return detail::bounded_json(text(name), program_limits());
  } catch (const detail::BadJson& error) {
    refuse(path_, name, " is not JSON: ", error.what());
  }
}

}  // namespace lockstep::exported
