#include <c10/util/StringUtil.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/frozen_watch.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <lockstep/runtime/storage/impl/versions.h>

namespace lockstep::detail {
namespace {

uint64_t digest_of_bits(const at::Tensor& tensor, const std::string& name) {
  return tensor.is_cpu() ? digest({flat_alias(tensor, name)}) : 0;
}

}  // namespace

FrozenWatch::FrozenWatch(const std::vector<ModelTensor>& frozen, const ExactValues& exact,
                         const Precision& precision, int64_t period)
    : exact_(exact), level_(precision.describe()), period_(period) {
  for (const ModelTensor& entry : frozen) {
    if (exact.is_lowered(entry.tensor) && entry.tensor.numel() > 0) {
      watched_.push_back({entry.name, entry.tensor});
    }
  }
}

bool FrozenWatch::is_noted() const {
  return noted_writes_ == exact_.writes();
}

void FrozenWatch::note() {
  for (Watched& weight : watched_) {
    weight.version = version_of(weight.tensor);
    weight.memory = weight.tensor.const_data_ptr();
    weight.digest = digest_of_bits(weight.tensor, weight.name);
  }
  noted_writes_ = exact_.writes();
  found_.reset();
}

std::optional<Error> FrozenWatch::change() const {
  if (!is_noted()) {
    return std::nullopt;
  }
  if (found_) {
    return found_;
  }
  for (const Watched& weight : watched_) {
    if (version_of(weight.tensor) != weight.version ||
        weight.tensor.const_data_ptr() != weight.memory) {
      return error(weight);
    }
  }
  return std::nullopt;
}

std::optional<Error> FrozenWatch::change_in_values() const {
  if (auto found = change(); found || !is_noted()) {
    return found;
  }
  for (const Watched& weight : watched_) {
    if (digest_of_bits(weight.tensor, weight.name) != weight.digest ||
        (!weight.tensor.is_cpu() && exact_.is_outdated(weight.tensor))) {
      return error(weight);
    }
  }
  return std::nullopt;
}

std::optional<Error> FrozenWatch::end_window() {
  ++windows_;
  if (!is_noted()) {
    note();
    return std::nullopt;
  }
  const bool due = (windows_ & (windows_ - 1)) == 0 || windows_ % period_ == 0;
  const bool on_host = watched_.empty() || watched_.front().tensor.is_cpu();
  found_ = due && on_host ? change_in_values() : change();
  return found_;
}

Error FrozenWatch::error(const Watched& weight) const {
  const std::string top = weight.name.substr(0, weight.name.find('.'));
  return Error(c10::str(
      "the frozen parameter ", weight.name, " was written after the first update, and ", level_,
      " keeps it in 16 bits without a master: small changes, such as those of a momentum encoder "
      "or of max_norm, would be rounded away. Keep what the program moves in fp32: "
      "Precision::keep_fp32(\"",
      weight.name, "\"), or with a part of its name, such as keep_fp32(\"", top,
      "\"). After copying whole weights into it, call trainer.adopt_weights() on every rank"));
}

}  // namespace lockstep::detail
