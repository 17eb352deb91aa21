#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/runtime/step/impl/averaged_buffers.h>
#include <lockstep/runtime/storage/impl/flat.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr size_t kGroups = 2;  // fp32, fp64

bool is_wide(const at::Tensor& buffer) {
  return buffer.scalar_type() == at::kDouble && buffer.is_cpu();
}

}  // namespace

AveragedBuffers::AveragedBuffers(const std::vector<ModelTensor>& buffers, double decay)
    : decay_(decay) {
  for (const ModelTensor& buffer : buffers) {
    const bool has_average = buffer.tensor.is_floating_point() && buffer.tensor.element_size() > 1;
    if (decay > 0.0 && has_average) {
      entries_.push_back({buffer, {}, 0, 0});
    }
  }
  lay_out();
}

void AveragedBuffers::lay_out() {
  const c10::AutoGradMode no_grad(false);
  groups_.assign(kGroups, {});
  std::vector<int64_t> sizes(kGroups, 0);
  for (Entry& entry : entries_) {
    entry.laid_out = entry.buffer.tensor.detach();
    entry.group = is_wide(entry.laid_out) ? 1 : 0;
    entry.offset = sizes[entry.group];
    sizes[entry.group] += entry.laid_out.numel();
    groups_[entry.group].buffers.push_back(flat_alias(entry.laid_out, entry.buffer.name));
  }
  for (size_t g = 0; g < kGroups; ++g) {
    Group& group = groups_[g];
    if (!group.buffers.empty()) {
      const auto dtype = g == 1 ? at::kDouble : at::kFloat;
      group.values = at::empty({sizes[g]}, group.buffers.front().options().dtype(dtype));
      at::cat_out(group.values, group.buffers);
      group.averages = group.values.clone();
    }
  }
}

void AveragedBuffers::follow() {
  const bool is_laid_out = std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    const at::Tensor& buffer = entry.buffer.tensor;
    return buffer.const_data_ptr() == entry.laid_out.const_data_ptr() &&
           buffer.sizes() == entry.laid_out.sizes() &&
           buffer.strides() == entry.laid_out.strides() &&
           buffer.scalar_type() == entry.laid_out.scalar_type();
  });
  if (is_laid_out) {
    return;
  }
  const NamedTensors before = named();
  lay_out();
  const NamedTensors now = named();
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i].second.sizes() == before[i].second.sizes()) {
      now[i].second.copy_(before[i].second);
    }
  }
}

void AveragedBuffers::move(const amp::StepState* state) {
  const c10::AutoGradMode no_grad(false);
  follow();
  for (const Group& group : groups_) {
    if (group.averages.defined() && group.averages.numel() > 0) {
      at::Tensor values = group.values;
      at::cat_out(values, group.buffers);
      amp::FlatSpan span;
      span.gradient = values;
      span.master = values;
      span.average = group.averages;
      span.average_rest = 1.0 - decay_;
      amp::move_average(span, state);
    }
  }
}

void AveragedBuffers::restart(const std::vector<std::string>& names) {
  const c10::AutoGradMode no_grad(false);
  follow();
  for (const Entry& entry : entries_) {
    const auto is_named = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const std::vector<std::string>& aliases = entry.buffer.aliases;
    if (is_named(entry.buffer.name) || std::any_of(aliases.begin(), aliases.end(), is_named)) {
      average(entry).copy_(entry.laid_out);
    }
  }
}

void AveragedBuffers::restart() {
  std::vector<std::string> all;
  for (const Entry& entry : entries_) {
    all.push_back(entry.buffer.name);
  }
  restart(all);
}

NamedTensors AveragedBuffers::named() const {
  NamedTensors result;
  for (const Entry& entry : entries_) {
    result.emplace_back(entry.buffer.name, average(entry));
  }
  return result;
}

at::Tensor AveragedBuffers::average(const Entry& entry) const {
  return shaped_view(groups_[entry.group].averages, entry.offset, entry.laid_out);
}

int64_t AveragedBuffers::bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) {
    bytes += group.averages.defined() ? static_cast<int64_t>(group.averages.nbytes()) : 0;
  }
  return bytes;
}

}  // namespace lockstep::detail
