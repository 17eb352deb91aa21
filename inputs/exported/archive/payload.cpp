#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/safe_numerics.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/archive/parsed.h>
#include <lockstep/inputs/exported/archive/payload.h>

#include <cstring>
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
  PayloadReader(Archive& archive, std::string folder, const Json& config)
      : archive_(archive), folder_(std::move(folder)) {
    for (const auto& [name, entry] : config.items()) {
      users_[entry.at("path_name").get<std::string>()] += 1;
    }
  }

  /// True if no other tensor lies in the record.
  bool alone(const Json& entry) const {
    return users_.at(entry.at("path_name").get<std::string>()) == 1;
  }

  const std::map<std::string, at::Tensor>& records() const { return records_; }

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
  std::map<std::string, int> users_;  // tensors in each record
  std::map<std::string, at::Tensor> records_;
  std::map<Key, at::Tensor> tensors_;
};

/// The folder of a kind of tensors and the record that describes them.
struct Payload {
  std::string folder;
  std::string config;
};

Payload weights_of(const std::string& program) {
  return {"data/weights/", "data/weights/" + program + "_weights_config.json"};
}

Payload constants_of(const std::string& program) {
  return {"data/constants/", "data/constants/" + program + "_constants_config.json"};
}

std::vector<StoredTensor> read_all(Archive& archive, const Payload& payload) {
  const Json json = archive.json(payload.config);
  return parsed(archive.path(), payload.config, [&] {
    const Json& config = json.at("config");
    PayloadReader reader(archive, payload.folder, config);
    std::vector<StoredTensor> tensors;
    for (const auto& [name, entry] : config.items()) {
      tensors.push_back(reader.read(name, entry));
      at::Tensor& tensor = tensors.back().tensor;
      if (!tensors.back().parameter && !tensor.is_non_overlapping_and_dense() &&
          reader.alone(entry)) {
        tensor = tensor.contiguous();
      }
    }
    return tensors;
  });
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) {
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  }
  return bytes;
}

bool overlaps(const at::Tensor& tensor) {
  return at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

/// `entry` for a tensor that fills a record of its own.
void make_contiguous(Json& entry, const at::Tensor& tensor) {
  Json& meta = entry.at("tensor_meta");
  for (size_t d = 0; d < meta.at("strides").size(); ++d) {
    meta["strides"][d]["as_int"] = tensor.stride(static_cast<int64_t>(d));
  }
  meta["storage_offset"]["as_int"] = 0;
}

void write_all(Archive& archive, const Payload& payload, const std::vector<NamedTensors>& lists,
               Records& changed) {
  Json json = archive.json(payload.config);
  parsed(archive.path(), payload.config, [&] {
    const at::NoGradGuard no_grad;
    PayloadReader reader(archive, payload.folder, json.at("config"));
    for (const NamedTensors& values : lists) {
      size_t found = 0;
      for (auto& [name, entry] : json.at("config").items()) {
        const auto value = values.find(name);
        if (value == values.end()) {
          continue;
        }
        ++found;
        const at::Tensor place = reader.read(name, entry).tensor;
        if (place.sizes() != value->second.sizes()) {
          malformed("'", name, "' has other sizes than the model: the archive has been replaced");
        }
        if (!overlaps(place)) {
          place.copy_(value->second);
          continue;
        }
        if (!reader.alone(entry)) {
          malformed("'", name, "' shares its elements with itself and with other tensors");
        }
        const at::Tensor whole = value->second.to(at::kCPU, place.scalar_type()).contiguous();
        make_contiguous(entry, whole);
        changed[payload.folder + entry.at("path_name").get<std::string>()] =
            whole.view({-1}).view(at::kByte);
        changed[payload.config] = bytes_of(json.dump());
      }
      if (found != values.size()) {
        malformed("not all tensors of the model are here: the archive has been replaced");
      }
    }
    for (const auto& [path, bytes] : reader.records()) {
      changed.emplace(payload.folder + path, bytes);
    }
  });
}

}  // namespace

std::vector<StoredTensor> read_weights(Archive& archive, const std::string& program) {
  if (archive.has("data/weights/" + program + ".pt")) {
    refuse(archive.path(),
           "the weights are pickled, as torch before 2.9 wrote them. Export the "
           "model again with the torch that this program links");
  }
  return read_all(archive, weights_of(program));
}

std::vector<StoredTensor> read_constants(Archive& archive, const std::string& program) {
  return read_all(archive, constants_of(program));
}

void write_weights(Archive& archive, const std::string& program,
                   const std::vector<NamedTensors>& values, Records& changed) {
  write_all(archive, weights_of(program), values, changed);
}

void write_constants(Archive& archive, const std::string& program, const NamedTensors& values,
                     Records& changed) {
  write_all(archive, constants_of(program), {values}, changed);
}

}  // namespace lockstep::exported
