#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_header.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>
#include <lockstep/collectives/impl/plain_tensor.h>

#include <functional>
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

/// Passes the bytes of the file to a function, piece by piece.
WrittenFile render(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                   const std::function<void(const void*, size_t)>& write) {
  std::unordered_map<std::string, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    require_storable(name, tensor);
    by_name.emplace(name, &tensor);
  }
  SafetensorsHeader header = describe(tensors, metadata);
  const std::string start = header.lay_out();
  WrittenFile written;
  written.bytes = header.file_bytes();
  written.header = digest_of(start);
  write(start.data(), start.size());
  for (const StoredTensor& stored : header.tensors) {
    const at::Tensor host = host_elements(stored.name, *by_name.at(stored.name));
    const size_t bytes = host.nbytes();
    written.tensors[stored.name] = digest_of(host.const_data_ptr(), bytes);
    if (bytes > 0) {
      write(host.const_data_ptr(), bytes);
    }
  }
  return written;
}

}  // namespace

std::string why_not_storable(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "is undefined and cannot be saved";
  }
  if (const std::string why = detail::why_not_plain(tensor); !why.empty()) {
    return c10::str("cannot be saved: it ", why);
  }
  if (!has_stored_type(tensor.scalar_type())) {
    return c10::str("cannot be saved: safetensors has no element type for ", tensor.scalar_type(),
                    "; use ",
                    tensor.is_complex() ? "complex64, or two real numbers (at::view_as_real())"
                                        : "a type that it has",
                    ", or keep the tensor out of what is saved");
  }
  return SafetensorsHeader::why_unusable(name, static_cast<size_t>(tensor.dim()));
}

void require_storable(const std::string& name, const at::Tensor& tensor) {
  constexpr size_t kShown = 200;
  const std::string why = why_not_storable(name, tensor);
  if (!why.empty()) {
    reject_with(c10::str("tensor \"", name.substr(0, kShown), name.size() > kShown ? "..." : "",
                         "\" ", why));
  }
}

at::Tensor host_elements(const std::string& name, const at::Tensor& tensor) {
  require_storable(name, tensor);
  return detail::applied(tensor.detach()).cpu().contiguous();
}

WrittenFile write_safetensors(FileSystem& files, const std::string& path,
                              const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::unique_ptr<OutputFile> file;
  const WrittenFile written = render(tensors, metadata, [&](const void* data, size_t bytes) {
    if (!file) {
      file = files.create_file(path, kFileMode);
    }
    file->write(data, bytes);
  });
  file->sync();
  file->close();
  return written;
}

WrittenFile describe_safetensors(const NamedTensors& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  return render(tensors, metadata, [](const void*, size_t) {});
}

}  // namespace lockstep::snapshot
