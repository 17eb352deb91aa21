#include <lockstep/datasets/files/file_bytes.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

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
}

}  // namespace lockstep::detail
