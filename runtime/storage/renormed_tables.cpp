#include <ATen/ops/abs.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/renormed_tables.h>
#include <lockstep/runtime/storage/impl/versions.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr int64_t kPart = int64_t{1} << 20;  // elements that travel at once

}  // namespace

RenormedTables::RenormedTables(const Model& model, Communicator devices)
    : devices_(std::move(devices)) {
  if (model.module() == nullptr) {
    return;
  }
  const auto visit = [&](torch::nn::Module& module) {
    if (const auto* table = module.as<torch::nn::EmbeddingImpl>();
        table != nullptr && table->options.max_norm()) {
      note(model, table->weight, *table->options.max_norm());
    }
    if (const auto* table = module.as<torch::nn::EmbeddingBagImpl>();
        table != nullptr && table->options.max_norm()) {
      note(model, table->weight, *table->options.max_norm());
    }
  };
  visit(*model.module());
  for (const auto& module : model.module()->modules(/*include_self=*/false)) {
    visit(*module);
  }
}

void RenormedTables::note(const Model& model, const at::Tensor& weight, double max_norm) {
  for (const ModelTensor& entry : model.parameters()) {
    if (entry.tensor.is_same(weight) && !has(entry.name)) {
      tables_.push_back({entry, entry.tensor.detach(), max_norm});
    }
  }
}

void RenormedTables::merge() {
  if (devices_.size() == 1) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  for (const Table& table : tables_) {
    const at::Tensor& now = table.entry.tensor;
    const bool as_it_was = now.scalar_type() == table.home.scalar_type() &&
                           now.sizes() == table.home.sizes() &&
                           now.strides() == table.home.strides();
    if (merge(flat_alias(as_it_was ? now : table.home, table.entry.name).data())) {
      note_writes({table.entry});
    }
  }
}

/// True if the table has changed, as far as the host knows without waiting for a device.
bool RenormedTables::merge(const at::Tensor& flat) {
  bool changed = false;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPart) {
    const at::Tensor part = flat.narrow(0, begin, std::min(kPart, flat.numel() - begin));
    at::Tensor nearest = part.abs().neg_();
    devices_.all_reduce(nearest, ReduceOp::max()).wait();
    nearest = at::copysign(nearest, part);
    if (!part.is_cpu() || !at::equal(nearest, part)) {
      part.copy_(nearest);
      changed = true;
    }
  }
  return changed;
}

bool RenormedTables::has(const std::string& name) const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [&](const Table& table) { return table.entry.name == name; });
}

std::string RenormedTables::describe() const {
  std::string text;
  for (const Table& table : tables_) {
    text += c10::str("embedding ", table.entry.name, " max_norm ", table.max_norm, "\n");
  }
  return text;
}

bool has_renormed_tables(const Model& model) {
  return !RenormedTables(model, Communicator::solo()).describe().empty();
}

void require_no_renormed_tables(const std::string& why, const Model& model) {
  const std::string tables = RenormedTables(model, Communicator::solo()).describe();
  LOCKSTEP_CHECK(tables.empty(), why, tables.substr(0, tables.find('\n')),
                 ": its forward writes the rows that a batch reads; leave max_norm out, and call "
                 "weight.renorm_() after the update");
}

}  // namespace lockstep::detail
