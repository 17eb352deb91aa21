#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/safetensors_output.h>
#include <lockstep/checkpointing/snapshot/safetensors_header.h>
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

}  // namespace lockstep::snapshot
