#include <ATen/Functions.h>
#include <c10/util/safe_numerics.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/archive/parsed.h>
#include <lockstep/inputs/exported/archive/payload.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

std::vector<int64_t> integers(const Json& list) {
  std::vector<int64_t> values;
  for (const Json& entry : list) {
    values.push_back(integer(entry.at("as_int")));
  }
  return values;
}

/// The place of a tensor in its record, in elements.
struct Layout {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset;
};

Layout layout_of(const Json& meta) {
  return {scalar_type(meta.at("dtype")), integers(meta.at("sizes")), integers(meta.at("strides")),
          integer(meta.at("storage_offset").at("as_int"))};
}

/// True if all elements of the layout are within `elements`.
bool fits(const Layout& layout, uint64_t elements) {
  if (layout.sizes.size() != layout.strides.size() || layout.offset < 0) {
    return false;
  }
  uint64_t end = static_cast<uint64_t>(layout.offset);
  bool empty = false;
  uint64_t numel = 1;
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] < 0 || layout.strides[d] < 0) {
      return false;
    }
    const auto size = static_cast<uint64_t>(layout.sizes[d]);
    empty = empty || size == 0;
    uint64_t reach = 0;
    if (c10::mul_overflows(size, numel, &numel)) {
      return false;
    }
    if (size > 0 &&
        (c10::mul_overflows(size - 1, static_cast<uint64_t>(layout.strides[d]), &reach) ||
         c10::add_overflows(end, reach, &end))) {
      return false;
    }
  }
  return empty || end < elements;
}

/// Reads the tensors of one payload configuration.
class PayloadReader {
 public:
  PayloadReader(Archive& archive, std::string folder)
      : archive_(archive), folder_(std::move(folder)) {}

  StoredTensor read(const std::string& name, const Json& entry) {
    if (entry.at("use_pickle").get<bool>()) {
      refuse(archive_.path(), "'", name,
             "' is pickled (a tensor subclass or a custom object), and "
             "pickle can run any code. Export a model whose parameters, buffers and constants are "
             "plain tensors");
    }
    const Json& meta = entry.at("tensor_meta");
    const bool parameter = entry.at("is_param").get<bool>();
    const bool requires_grad = meta.at("requires_grad").get<bool>();
    const auto path = entry.at("path_name").get<std::string>();
    const Layout layout = layout_of(meta);
    at::Tensor& shared =
        tensors_[{path, parameter, layout.dtype, layout.sizes, layout.strides, layout.offset}];
    if (!shared.defined()) {
      shared = view(name, path, layout);
      if (parameter && requires_grad) {
        if (!c10::isFloatingType(layout.dtype) && !c10::isComplexType(layout.dtype)) {
          refuse(archive_.path(), "the parameter '", name, "' is trainable, but has integers");
        }
        shared.requires_grad_(true);
      }
    }
    return {name, shared, parameter, device_of(meta.at("device"))};
  }

 private:
  at::Tensor view(const std::string& name, const std::string& path, const Layout& layout) {
    const at::Tensor bytes = bytes_of(path);
    const auto elements = static_cast<uint64_t>(bytes.numel()) / c10::elementSize(layout.dtype);
    if (!fits(layout, elements)) {
      refuse(archive_.path(), "the sizes of '", name, "' reach beyond the ", bytes.numel(),
             " bytes of ", folder_, path);
    }
    const auto whole = static_cast<int64_t>(elements * c10::elementSize(layout.dtype));
    return bytes.slice(0, 0, whole)
        .view(layout.dtype)
        .as_strided(layout.sizes, layout.strides, layout.offset)
        .variable_data();  // no view for autograd: it has its own version
  }

  at::Tensor bytes_of(const std::string& path) {
    at::Tensor& bytes = records_[path];
    if (!bytes.defined()) {
      auto record = std::make_shared<Record>(archive_.read(folder_ + path));
      bytes = at::from_blob(
          record->data.get(), {static_cast<int64_t>(record->size)}, [record](void*) {}, at::kByte);
      if (record->size == 0) {
        bytes = at::empty({0}, at::kByte);
      }
    }
    return bytes;
  }

  using Key = std::tuple<std::string, bool, at::ScalarType, std::vector<int64_t>,
                         std::vector<int64_t>, int64_t>;
  Archive& archive_;
  std::string folder_;
  std::map<std::string, at::Tensor> records_;
  std::map<Key, at::Tensor> tensors_;
};

std::vector<StoredTensor> read_all(Archive& archive, const std::string& folder,
                                   const std::string& config_name) {
  const Json config = archive.json(folder + config_name);
  return parsed(archive.path(), folder + config_name, [&] {
    PayloadReader reader(archive, folder);
    std::vector<StoredTensor> tensors;
    for (const auto& [name, entry] : config.at("config").items()) {
      tensors.push_back(reader.read(name, entry));
    }
    return tensors;
  });
}

}  // namespace

std::vector<StoredTensor> read_weights(Archive& archive, const std::string& program) {
  if (archive.has("data/weights/" + program + ".pt")) {
    refuse(archive.path(),
           "the weights are pickled, as torch before 2.9 wrote them. Export the "
           "model again with the torch that this program links");
  }
  return read_all(archive, "data/weights/", program + "_weights_config.json");
}

std::vector<StoredTensor> read_constants(Archive& archive, const std::string& program) {
  return read_all(archive, "data/constants/", program + "_constants_config.json");
}

}  // namespace lockstep::exported
