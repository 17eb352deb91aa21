#include <lockstep/collectives/impl/file_mapping.h>

#include <sys/mman.h>
#include <sys/stat.h>

namespace lockstep::detail {

FileMapping::~FileMapping() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

FileMapping::Result FileMapping::map(const Descriptor& file) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Result::not_regular;
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) {
    return Result::mapped;
  }
  void* const memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number(), 0);
  if (memory == MAP_FAILED) {
    return Result::failed;
  }
  data_ = static_cast<char*>(memory);
  return Result::mapped;
}

}  // namespace lockstep::detail
