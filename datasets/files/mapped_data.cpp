#include <lockstep/datasets/files/mapped_data.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::detail {
namespace {

/// Closes the descriptor at the end of the scope; the mapping stays.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) {
      ::close(number);
    }
  }
};

}  // namespace

MappedData::MappedData(std::string path) : path_(std::move(path)) {
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  LOCKSTEP_CHECK_CODE(file.number >= 0, ExitCode::data, path_,
                      ": cannot be opened: ", std::strerror(errno), "; check the data folder");
  struct stat status {};
  LOCKSTEP_CHECK_CODE(::fstat(file.number, &status) == 0 && S_ISREG(status.st_mode), ExitCode::data,
                      path_, ": is not a regular file");
  size_ = static_cast<size_t>(status.st_size);
  check(size_ > 0, 0, "the file is empty");
  void* memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number, 0);
  LOCKSTEP_CHECK_CODE(memory != MAP_FAILED, ExitCode::data, path_,
                      ": cannot be mapped into memory: ", std::strerror(errno));
  data_ = static_cast<uint8_t*>(memory);
}

MappedData::~MappedData() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

}  // namespace lockstep::detail
