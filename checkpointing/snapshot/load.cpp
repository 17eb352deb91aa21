#include <lockstep/checkpointing/snapshot/impl/tensor_load.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/collectives/impl/plain_tensor.h>

namespace lockstep::snapshot {
namespace {

void append(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) {
    return;
  }
  text += c10::str(text.empty() ? "" : "\n", what, " (", names.size(), "):");
  for (const std::string& name : names) {
    text += "\n  " + name;
  }
}

bool converts(at::ScalarType from, at::ScalarType to) {
  return from == to || (c10::isFloatingType(from) && c10::isFloatingType(to));
}

}  // namespace

std::string why_misshapen(const TensorSource& source, const std::string& name,
                          at::IntArrayRef wanted_sizes, at::ScalarType wanted_dtype) {
  const std::vector<int64_t> sizes = source.sizes(name);
  const at::ScalarType dtype = source.dtype(name);
  if (wanted_sizes != at::IntArrayRef(sizes)) {
    return c10::str("saved with sizes ", at::IntArrayRef(sizes), ", wanted ", wanted_sizes);
  }
  if (!converts(dtype, wanted_dtype)) {
    return c10::str("saved as ", dtype, ", wanted as ", wanted_dtype,
                    ", which would change its values");
  }
  return "";
}

std::string LoadReport::text() const {
  std::string text;
  append(text, "missing", missing);
  append(text, "unexpected", unexpected);
  append(text, "of other sizes or type", misshapen);
  return text;
}

LoadReport load_tensors(const TensorSource& source,
                        const std::vector<std::pair<std::string, at::Tensor>>& targets,
                        const LoadOptions& options) {
  std::vector<TensorLoad::Target> outlines;
  for (const auto& [name, target] : targets) {
    const std::string odd = detail::why_not_plain(target);
    outlines.push_back({name, odd.empty() ? target.sizes().vec() : std::vector<int64_t>(),
                        target.scalar_type(), odd});
  }
  const TensorLoad load(source, outlines, options);
  for (const auto& [name, target] : targets) {
    load.copy(name, target);
  }
  return load.report();
}

}  // namespace lockstep::snapshot
