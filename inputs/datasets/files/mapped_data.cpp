#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/files/mapped_data.h>

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::detail {

MappedData::MappedData(std::string path) : path_(std::move(path)) {
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  LOCKSTEP_CHECK_CODE(file.is_open(), ExitCode::data, path_,
                      ": cannot be opened: ", std::strerror(errno), "; check the data folder");
  const FileMapping::Result result = mapping_.map(file);
  LOCKSTEP_CHECK_CODE(result != FileMapping::Result::not_regular, ExitCode::data, path_,
                      ": is not a regular file");
  check(size() > 0, 0, "the file is empty");
  LOCKSTEP_CHECK_CODE(result == FileMapping::Result::mapped, ExitCode::data, path_,
                      ": cannot be mapped into memory: ", std::strerror(errno));
}

}  // namespace lockstep::detail
