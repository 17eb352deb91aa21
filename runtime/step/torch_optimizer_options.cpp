#include <c10/util/Type.h>
#include <lockstep/runtime/step/own/torch_optimizer_options.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <sstream>
#include <typeinfo>

namespace lockstep::detail {
namespace {

/// "0-2, 4": which of the masters a group has, in its order.
std::string places(const std::vector<at::Tensor>& group, const std::vector<at::Tensor>& masters) {
  std::ostringstream out;
  int64_t first = -1;
  int64_t last = -1;
  const auto close = [&] {
    if (first >= 0) {
      out << (out.tellp() > 0 ? ", " : "") << first;
      if (last > first) {
        out << "-" << last;
      }
    }
  };
  for (const at::Tensor& parameter : group) {
    const auto found = std::find_if(masters.begin(), masters.end(), [&](const at::Tensor& master) {
      return master.is_same(parameter);
    });
    const int64_t place = found - masters.begin();
    if (first < 0 || place != last + 1) {
      close();
      first = place;
    }
    last = place;
  }
  close();
  return out.str();
}

/// Reads what torch::save would write, because every class of torch::optim can serialize.
std::string values(const torch::optim::OptimizerOptions& options) {
  torch::serialize::OutputArchive written;
  options.serialize(written);
  std::stringstream bytes;
  written.save_to(bytes);
  torch::serialize::InputArchive read;
  read.load_from(bytes);
  std::ostringstream out;
  for (const std::string& key : read.keys()) {
    c10::IValue value;
    read.read(key, value);
    out << (out.tellp() > 0 ? ", " : "") << key << " " << value;
  }
  return out.str();
}

std::string values_or_rate(const torch::optim::OptimizerOptions& options) {
  try {
    return values(options);
  } catch (const c10::Error&) {
    return c10::str("lr ", options.get_lr(), ", other options unknown");
  }
}

}  // namespace

std::string describe_options(const torch::optim::Optimizer& optimizer,
                             const std::vector<at::Tensor>& masters) {
  std::string text = c10::demangle(typeid(optimizer).name());
  const char* separator = ": ";
  for (const auto& group : optimizer.param_groups()) {
    text += c10::str(separator, "parameters ", places(group.params(), masters), " with ",
                     values_or_rate(group.options()));
    separator = "; ";
  }
  return text;
}

}  // namespace lockstep::detail
