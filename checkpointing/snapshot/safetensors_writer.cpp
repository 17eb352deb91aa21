#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>

namespace lockstep::snapshot {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const auto files = FileSystem::current();
  const std::string temporary = path + ".tmp";
  if (exists(temporary)) {
    files->remove_file(temporary);
  }
  write_safetensors(*files, temporary, tensors, metadata);
  files->rename(temporary, path);
  files->sync_folder(folder_of(path));
}

}  // namespace lockstep::snapshot
