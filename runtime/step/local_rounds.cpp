#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/seconds_since.h>
#include <lockstep/runtime/step/impl/local_rounds.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/state_copy.h>

#include <chrono>
#include <utility>

namespace lockstep::detail {

LocalRounds::LocalRounds(LocalUpdates options, Communicator devices, Arena& arena,
                         const Reducer& reducer, Updater& updater)
    : options_(std::move(options)),
      devices_(std::move(devices)),
      arena_(arena),
      reducer_(reducer),
      updater_(updater) {
  const c10::AutoGradMode no_grad(false);
  for (const at::Tensor& master : arena_.whole_masters()) {
    LOCKSTEP_CHECK(master.scalar_type() == at::kFloat || master.scalar_type() == at::kDouble,
                   "local_updates: weights are kept in ", master.scalar_type(),
                   " without a master, and the difference of a round would be lost; use O0, O1 or "
                   "O2");
    anchors_.push_back(master.clone());
    if (options_.outer_momentum() > 0.0) {
      momenta_.push_back(at::zeros_like(master));
    }
  }
}

double LocalRounds::end_update() {
  const auto start = std::chrono::steady_clock::now();
  if (++updates_of_round_ >= options_.updates()) {
    finish();
  }
  return seconds_since(start);
}

void LocalRounds::finish() {
  if (updates_of_round_ == 0) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> masters = arena_.whole_masters();
  std::vector<Work> exchanges;
  for (size_t b = 0; b < masters.size(); ++b) {
    at::Tensor difference = reducer_.wire(b);
    at::sub_out(difference, anchors_[b], masters[b]);
    exchanges.push_back(devices_.all_reduce(difference, ReduceOp::avg()));
  }
  for (size_t b = 0; b < masters.size(); ++b) {
    exchanges[b].wait();
    outer_step(b, reducer_.wire(b));
  }
  go_back();  // to the new anchors
  if (options_.average_moments()) {
    average_moments();
  }
}

/// The operations of torch.optim.SGD, in their order.
void LocalRounds::outer_step(size_t bucket, const at::Tensor& gradient) {
  at::Tensor step = gradient;
  if (!momenta_.empty()) {
    at::Tensor& momentum = momenta_[bucket];
    momentum.mul_(options_.outer_momentum()).add_(gradient);
    step =
        options_.outer_nesterov() ? gradient.add_(momentum, options_.outer_momentum()) : momentum;
  }
  anchors_[bucket].add_(step, -options_.outer_lr());
}

void LocalRounds::go_back() {
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> room = arena_.room_for_masters();
  for (size_t b = 0; b < room.size(); ++b) {
    room[b].copy_(anchors_[b]);
  }
  arena_.take_masters(room);
  updates_of_round_ = 0;
}

void LocalRounds::restart() {
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> masters = arena_.whole_masters();
  for (size_t b = 0; b < masters.size(); ++b) {
    anchors_[b].copy_(masters[b]);
  }
  updates_of_round_ = 0;
}

/// Handles every format of moments, because it averages the values that a snapshot has.
void LocalRounds::average_moments() {
  const auto visit = [this](StateArchive& archive) { updater_.visit_state(reducer_, archive); };
  StateCopy moments;
  moments.take(visit);
  for (const auto& [name, moment] : moments.tensors()) {
    if (moment.device() == anchors_.front().device() && moment.numel() > 0) {
      devices_.all_reduce(flat_alias(moment, name), ReduceOp::avg()).wait();
    }
  }
  moments.require_taken();
  moments.give_back(visit);
}

std::vector<ReplicatedArray> LocalRounds::shared() const {
  std::vector<ReplicatedArray> arrays;
  const auto add = [&](const std::vector<at::Tensor>& flats, const std::string& kind) {
    for (size_t b = 0; b < flats.size(); ++b) {
      for (const Slot& slot : reducer_.plans()[b].slots) {
        arrays.push_back({reducer_.parameters()[static_cast<size_t>(slot.parameter)].name + kind,
                          flats[b].narrow(0, slot.offset, slot.numel)});
      }
    }
  };
  add(anchors_, " (at the start of the round)");
  add(momenta_, ".outer_momentum");
  return arrays;
}

int64_t LocalRounds::bytes() const {
  int64_t bytes = 0;
  for (const auto* flats : {&anchors_, &momenta_}) {
    for (const at::Tensor& flat : *flats) {
      bytes += static_cast<int64_t>(flat.nbytes());
    }
  }
  return bytes;
}

void LocalRounds::visit_state(StateArchive& archive) {
  const auto wanted = [&](const std::string& name) {
    return archive.saving() || archive.has(name);
  };
  const std::vector<at::Tensor> views =
      momenta_.empty() ? std::vector<at::Tensor>()
                       : parameter_views(momenta_, reducer_.parameters(), reducer_.plans());
  for (size_t i = 0; i < views.size(); ++i) {
    const std::string name = reducer_.parameters()[i].name + ".outer_momentum";
    if (wanted(name)) {
      archive.tensor(name, storable_view(views[i]));
    } else if (archive.loading()) {
      views[i].zero_();
    }
  }
  if (wanted("round.updates")) {
    archive.number("round.updates", updates_of_round_);
  }
}

}  // namespace lockstep::detail
