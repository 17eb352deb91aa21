#include <ATen/autocast_mode.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/modes.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::exported {

Modes modes_of(const nlohmann::json& settings, c10::Device home) {
  const auto setting = [&](size_t i) { return alternative(settings.at(i).at("arg")); };
  if (settings.size() == 1) {
    return {setting(0).second->get<bool>(), std::nullopt};
  }
  if (settings.size() != 4) {
    malformed("the region has ", settings.size(), " settings");
  }
  Autocast autocast;
  const c10::Device device(setting(0).second->get<std::string>());
  if (device.type() != home.type()) {
    autocast.device = device.type();
  }
  if (const auto [kind, dtype] = setting(1); kind != "as_none") {
    autocast.dtype = scalar_type(*dtype);
  }
  autocast.enabled = setting(2).second->get<bool>();
  if (const auto [kind, cache] = setting(3); kind != "as_none") {
    autocast.cache = cache->get<bool>();
  }
  return {std::nullopt, autocast};
}

ModeGuard::ModeGuard(const Modes& modes, const Place& place) {
  if (modes.grad.has_value()) {
    grad_.emplace(*modes.grad);
  }
  if (!modes.autocast.has_value()) {
    return;
  }
  const Autocast& autocast = *modes.autocast;
  const c10::DeviceType device = autocast.device.value_or(place.device.type());
  outer_ = {device, at::autocast::is_autocast_enabled(device),
            at::autocast::get_autocast_dtype(device), at::autocast::is_autocast_cache_enabled()};
  at::autocast::set_autocast_enabled(device, autocast.enabled);
  at::autocast::set_autocast_dtype(device, autocast.dtype.value_or(outer_->dtype));
  at::autocast::increment_nesting();
  at::autocast::set_autocast_cache_enabled(autocast.cache);
}

ModeGuard::~ModeGuard() {
  if (!outer_.has_value()) {
    return;
  }
  // Who switched the cache off, as checkpoint() does, does not look into it: casts of old weights
  // would stay.
  if (at::autocast::decrement_nesting() == 0 || !outer_->cache) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(outer_->device, outer_->enabled);
  at::autocast::set_autocast_dtype(outer_->device, outer_->dtype);
  at::autocast::set_autocast_cache_enabled(outer_->cache);
}

}  // namespace lockstep::exported
