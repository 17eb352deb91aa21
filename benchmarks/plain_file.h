#pragma once

#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <lockstep/collectives/check.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

/// A file with the bytes of all tensors and nothing else.
class PlainFile {
 public:
  explicit PlainFile(std::string path) : path_(std::move(path)) {}
  void write(const Named& all) const {
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (const auto& [name, tensor] : all) {
      require(::write(file, tensor.const_data_ptr(), tensor.nbytes()), tensor);
    }
    ::fsync(file);
    ::close(file);
  }
  void read(const Named& all) const {
    const int file = ::open(path_.c_str(), O_RDONLY);
    for (const auto& [name, tensor] : all) {
      require(::read(file, tensor.mutable_data_ptr(), tensor.nbytes()), tensor);
    }
    ::close(file);
  }

 private:
  static void require(ssize_t done, const at::Tensor& tensor) {
    LOCKSTEP_CHECK(done == static_cast<ssize_t>(tensor.nbytes()), "the plain file came up short");
  }
  std::string path_;
};

}  // namespace lockstep::benchmarks
