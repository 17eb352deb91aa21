#include <fcntl.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/run_key.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::snapshot {
namespace {

constexpr char kKeyName[] = "memory.key";

/// libsodium is ready when this returns.
void prepare() {
  static const bool is_ready = sodium_init() >= 0;
  LOCKSTEP_CHECK_CODE(is_ready, ExitCode::snapshot,
                      "libsodium finds no source of random numbers on this machine");
}

template <size_t size>
std::string hexadecimal(const std::array<unsigned char, size>& bytes) {
  std::array<char, 2 * size + 1> text = {};
  return sodium_bin2hex(text.data(), text.size(), bytes.data(), size);
}

}  // namespace

bool RunKey::is_in(const std::string& run_folder) {
  return exists(run_folder + "/" + kKeyName);
}

RunKey RunKey::of(const std::string& run_folder) {
  const std::string path = run_folder + "/" + kKeyName;
  const lockstep::detail::Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.number(), &status) != 0) {
    reject(path, "cannot be read: ", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 0077) != 0) {
    reject(path, "must be a regular file of user ", ::geteuid(),
           " with the mode 0600: it signs the run's snapshots in memory, and whoever knows it can "
           "choose the weights with which the run resumes. Remove it; the run makes a new one");
  }
  std::array<char, 65> text = {};
  const ssize_t bytes = ::read(file.number(), text.data(), text.size());
  return {std::string(text.data(), bytes < 0 ? 0 : static_cast<size_t>(bytes)), path};
}

RunKey RunKey::made_in(FileSystem& files, const std::string& run_folder) {
  if (!is_in(run_folder)) {
    prepare();
    std::array<unsigned char, 32> bytes = {};
    randombytes_buf(bytes.data(), bytes.size());
    replace_file(files, run_folder + "/" + kKeyName, hexadecimal(bytes), kPrivateFileMode);
  }
  return of(run_folder);
}

RunKey::RunKey(const std::string& text, const std::string& named) {
  prepare();
  size_t bytes = 0;
  if (sodium_hex2bin(bytes_.data(), bytes_.size(), text.data(), text.size(), nullptr, &bytes,
                     nullptr) != 0 ||
      bytes != bytes_.size()) {
    reject(named, "is no key: it must have ", 2 * bytes_.size(), " hexadecimal digits");
  }
}

std::string RunKey::text() const {
  return hexadecimal(bytes_);
}

std::string RunKey::signature_of(std::string_view content) const {
  std::array<unsigned char, 32> signature = {};
  crypto_generichash(signature.data(), signature.size(),
                     reinterpret_cast<const unsigned char*>(content.data()), content.size(),
                     bytes_.data(), bytes_.size());
  return hexadecimal(signature);
}

void RunKey::check(const std::string& path) const {
  const std::string expected = signature_of(MappedFile(path + "/" + kManifestName).text());
  const MappedFile signature(path + "/" + kSignatureName);
  if (signature.text().size() != expected.size() ||
      sodium_memcmp(signature.text().data(), expected.data(), expected.size()) != 0) {
    reject(path + "/" + kSignatureName,
           "is not the manifest's signature by the key of this run: another run, or somebody else, "
           "wrote the snapshot");
  }
}

}  // namespace lockstep::snapshot
