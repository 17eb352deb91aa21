#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/file_format.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace lockstep::detail {
namespace {

constexpr size_t kBeginning = size_t{1} << 20;
constexpr size_t kMostRatio = 200;  // of sizes, unpacked to packed; tables and pixels have 2 to 50
constexpr size_t kAnyRatio = size_t{16} << 20;  // bytes; what unpacks to less has any ratio

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

/// Reads a file from its beginning, unpacked if it is gzip.
class Unpacked {
 public:
  explicit Unpacked(const FileBytes& name) : name_(name) {
    struct stat status {};
    const std::string& path = name.path();
    file_.reset(gzopen(path.c_str(), "rb"));  // reads plain files as they are
    LOCKSTEP_CHECK_CODE(file_ != nullptr && stat(path.c_str(), &status) == 0, ExitCode::data, path,
                        ": cannot be opened: ", std::strerror(errno), "; check the data folder");
    LOCKSTEP_CHECK_CODE(S_ISREG(status.st_mode), ExitCode::data, path, ": is not a regular file");
    packed_ = static_cast<size_t>(status.st_size);
    most_ = gzdirect(file_.get()) != 0 ? packed_ : std::max(kAnyRatio, kMostRatio * packed_);
  }

  /// Fills `to`, unless the file ends. Returns the number of bytes.
  size_t read(uint8_t* to, size_t count) {
    size_t done = 0;
    for (int got = 1; done < count && got > 0; done += static_cast<size_t>(got)) {
      got = gzread(file_.get(), to + done,
                   static_cast<unsigned>(std::min<size_t>(count - done, kBeginning)));
      name_.check(got >= 0, at_ + done, "cannot be read: ", got < 0 ? reason() : "");
    }
    at_ += done;
    name_.check(at_ <= most_, at_, "this gzip file of ", packed_, " bytes unpacks to more than ",
                kMostRatio, " times its size; if that is meant, unpack it first");
    return done;
  }

  /// How many bytes follow.
  size_t count_rest() {
    if (gzdirect(file_.get()) != 0) {
      return packed_ - std::min(packed_, at_);
    }
    std::vector<uint8_t> some(kBeginning);
    const size_t before = at_;
    while (read(some.data(), some.size()) > 0) {
    }
    return at_ - before;
  }

  /// Throws unless the file ended where it should.
  void require_end() const {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    name_.check(code == Z_OK, at_,
                "the gzip file ends here (unpacked offset) in the middle of its data; expected a "
                "complete file: fetch it again");
  }

 private:
  std::string reason() const {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    return code == Z_ERRNO ? std::strerror(errno) : std::string(text);
  }

  const FileBytes& name_;
  std::unique_ptr<gzFile_s, CloseGzip> file_;
  size_t packed_ = 0;
  size_t most_ = 0;
  size_t at_ = 0;
};

}  // namespace

FileBytes::FileBytes(std::string path, const HeaderCheck& check_header)
    : path_(std::move(path)), bytes_(std::make_shared<std::vector<uint8_t>>(kBeginning)) {
  Unpacked first(*this);
  bytes_->resize(first.read(bytes_->data(), kBeginning));
  size_ = bytes_->size();
  check(size_ > 0, 0, "the file is empty");
  const FileFormat* format =
      known_format({reinterpret_cast<const char*>(bytes_->data()), bytes_->size()});
  check(format == nullptr, 0, "this is a file of ", format != nullptr ? format->name : "", "; ",
        format != nullptr ? format->advice : "");
  size_ += first.count_rest();
  first.require_end();
  if (check_header) {
    check_header(*this);
  }
  if (size_ > bytes_->size()) {
    *bytes_ = std::vector<uint8_t>(size_);
    const size_t read = Unpacked(*this).read(bytes_->data(), size_);
    check(read == size_, read, "the file became shorter while it was read");
  } else {
    bytes_->shrink_to_fit();
  }
}

}  // namespace lockstep::detail
