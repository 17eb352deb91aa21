#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/mapped_file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::snapshot {
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

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) {
    reject(path_, "cannot be opened for reading: ",
           errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) {
    reject(path_, "is not a regular file");
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) {
    return;
  }
  void* memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number, 0);
  if (memory == MAP_FAILED) {
    reject(path_, "cannot be mapped into memory: ", std::strerror(errno));
  }
  ::madvise(memory, size_, MADV_WILLNEED);
  data_ = static_cast<char*>(memory);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

}  // namespace lockstep::snapshot
