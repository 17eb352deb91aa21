#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::snapshot {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  using lockstep::detail::Descriptor;
  using Result = lockstep::detail::FileMapping::Result;
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    reject(path_, "cannot be opened for reading: ",
           errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  }
  const Result result = mapping_.map(file);
  if (result == Result::not_regular) {
    reject(path_, "is not a regular file");
  }
  if (result == Result::failed) {
    reject(path_, "cannot be mapped into memory: ", std::strerror(errno));
  }
  if (size() > 0) {
    ::madvise(data(), size(), MADV_WILLNEED);
  }
}

}  // namespace lockstep::snapshot
