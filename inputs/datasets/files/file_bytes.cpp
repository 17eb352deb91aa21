#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace lockstep::detail {
namespace {

constexpr unsigned chunk_bytes = 1U << 20;

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, CloseGzip>;

std::string reason(gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  return code == Z_ERRNO ? std::strerror(errno) : std::string(text);
}

/// The format of a packed file, by its magic bytes; empty for other files.
std::string packed_as(const std::vector<uint8_t>& bytes) {
  struct Mark {
    const char* format;
    size_t offset;
    std::string_view bytes;
  };
  using namespace std::string_view_literals;
  static constexpr Mark marks[] = {
      {"xz", 0, "\xfd\x37zXZ\0"sv},    {"zip", 0, "PK\3\4"sv},
      {"bzip2", 0, "BZh91AY&SY"sv},    {"zstd", 0, "\x28\xb5\x2f\xfd"sv},
      {"tar", 257, "ustar\0\60\60"sv}, {"tar", 257, "ustar  \0"sv}};  // POSIX, GNU
  constexpr size_t kSmallest = 30;                                    // an archive with any content
  for (const auto& [format, offset, mark] : marks) {
    if (bytes.size() >= std::max(kSmallest, offset + mark.size()) &&
        std::memcmp(bytes.data() + offset, mark.data(), mark.size()) == 0) {
      return format;
    }
  }
  return "";
}

}  // namespace

FileBytes::FileBytes(std::string path)
    : path_(std::move(path)), bytes_(std::make_shared<std::vector<uint8_t>>()) {
  const GzipFile file(gzopen(path_.c_str(), "rb"));  // reads plain files as they are
  LOCKSTEP_CHECK_CODE(file != nullptr, ExitCode::data, path_,
                      ": cannot be opened: ", std::strerror(errno), "; check the data folder");
  size_t size = 0;
  int read = 0;
  do {
    bytes_->resize(size + chunk_bytes);
    read = gzread(file.get(), bytes_->data() + size, chunk_bytes);
    check(read >= 0, size, "cannot be read: ", reason(file.get()));
    size += static_cast<size_t>(read);
  } while (read > 0);
  bytes_->resize(size);
  int code = Z_OK;
  gzerror(file.get(), &code);
  check(code == Z_OK, size, "the gzip file ends here (unpacked offset) in the middle of its data; ",
        "expected a complete file: fetch it again");
  check(size > 0, 0, "the file is empty");
  const std::string format = packed_as(*bytes_);
  check(format.empty(), 0, "this is a file of ", format,
        "; unpack it first: only gzip of a single file is unpacked while it is read");
}

}  // namespace lockstep::detail
