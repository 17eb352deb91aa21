#include <lockstep/checkpointing/snapshot/digest.h>
#include <lockstep/checkpointing/snapshot/safetensors_header.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/error.h>

#include <unordered_map>

namespace lockstep::snapshot {
namespace {

SafetensorsHeader describe(const NamedTensors& tensors,
                           const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [name, tensor] : tensors) {
    StoredTensor stored;
    stored.name = name;
    stored.type = &stored_type_of(tensor.scalar_type());
    stored.sizes = tensor.sizes().vec();
    header.tensors.push_back(std::move(stored));
  }
  return header;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

at::Tensor host_elements(const std::string& name, const at::Tensor& tensor) {
  LOCKSTEP_CHECK_CODE(tensor.defined() && tensor.layout() == at::kStrided, ExitCode::snapshot,
                      "tensor \"", name, "\" is ", tensor.defined() ? "not dense" : "undefined",
                      " and cannot be saved; save a dense tensor");
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

WrittenFile write_safetensors(FileSystem& files, const std::string& path,
                              const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::unordered_map<std::string, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    LOCKSTEP_CHECK_CODE(tensor.defined(), ExitCode::snapshot, "tensor \"", name,
                        "\" is undefined and cannot be saved");
    by_name.emplace(name, &tensor);
  }
  SafetensorsHeader header = describe(tensors, metadata);
  const std::string start = header.lay_out();
  WrittenFile written;
  written.bytes = header.file_bytes();
  written.header = digest_of(start);
  const auto file = files.create_file(path);
  file->write(start.data(), start.size());
  for (const StoredTensor& stored : header.tensors) {
    const at::Tensor host = host_elements(stored.name, *by_name.at(stored.name));
    const size_t bytes = host.nbytes();
    written.tensors[stored.name] = digest_of(host.const_data_ptr(), bytes);
    if (bytes > 0) {
      file->write(host.const_data_ptr(), bytes);
    }
  }
  file->sync();
  file->close();
  return written;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata, FileSystem* files) {
  const auto real = FileSystem::real();
  FileSystem& system = files != nullptr ? *files : *real;
  const std::string temporary = path + ".tmp";
  if (exists(temporary)) {
    system.remove_file(temporary);
  }
  write_safetensors(system, temporary, tensors, metadata);
  system.rename(temporary, path);
  system.sync_folder(folder_of(path));
}

}  // namespace lockstep::snapshot
