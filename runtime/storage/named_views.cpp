#include <lockstep/runtime/storage/impl/arena.h>
#include <lockstep/runtime/storage/impl/named_views.h>

namespace lockstep::detail {

NamedTensors named_views(const std::vector<at::Tensor>& flats,
                         const std::vector<ModelTensor>& parameters,
                         const std::vector<BucketPlan>& plans) {
  const std::vector<at::Tensor> views = parameter_views(flats, parameters, plans);
  NamedTensors result;
  for (size_t i = 0; i < views.size(); ++i) {
    result.emplace_back(parameters[i].name, views[i]);
  }
  return result;
}

void write(const NamedTensors& views, const std::map<std::string, at::Tensor>& before,
           const std::map<std::string, at::Tensor>& fresh) {
  for (const auto& [name, view] : views) {
    const auto found = before.find(name);
    view.copy_(found != before.end() ? found->second : fresh.at(name));
  }
}

}  // namespace lockstep::detail
