#include <lockstep/amp/layers/norm_types.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::detail {

namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

void strip(std::string_view& text, std::string_view end) {
  if (ends_with(text, end)) {
    text.remove_suffix(end.size());
  }
}

}  // namespace

bool is_norm_type(const std::string& type_name) {
  static constexpr std::array<std::string_view, 5> kNorms = {"BatchNorm", "LayerNorm", "GroupNorm",
                                                             "InstanceNorm", "RMSNorm"};
  std::string_view name = type_name;
  const size_t qualifier = name.find_last_of(".:");
  if (qualifier != std::string_view::npos) {
    name.remove_prefix(qualifier + 1);
  }
  strip(name, "Impl");
  for (const char* dimension : {"1d", "2d", "3d"}) {
    strip(name, dimension);
  }
  return std::any_of(kNorms.begin(), kNorms.end(),
                     [&](std::string_view norm) { return ends_with(name, norm); });
}

}  // namespace lockstep::detail
