#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/seconds_since.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/trainer/impl/memory_planning.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::detail {
namespace {

constexpr int64_t watched_micro_batches = 3;
// The allocator of page-locked memory takes up to twice the bytes, and others need memory, too.
constexpr int64_t host_share = 4;
// By then each rank that has data has a plan.
constexpr int64_t window_of_states = 5;

/// Whether the options are those of a Trainer that can be made.
bool are_valid(const TrainerOptions& options) {
  try {
    options.validate();
    return true;
  } catch (const Error&) {
    return false;
  }
}

ActivationPlanning::Peaks larger(const ActivationPlanning::Peaks& a,
                                 const ActivationPlanning::Peaks& b) {
  ActivationPlanning::Peaks result = a;
  result.whole = std::max(a.whole, b.whole);
  result.before = std::max(a.before, b.before);
  result.between = std::max(a.between, b.between);
  return result;
}

int64_t total_bytes(const std::vector<ModelTensor>& tensors) {
  int64_t bytes = 0;
  for (const ModelTensor& entry : tensors) {
    bytes += static_cast<int64_t>(entry.tensor.nbytes());
  }
  return bytes;
}

/// Whether hardly any input of a stage, which is the output of the one before, would stay on the
/// device because it is small.
bool inputs_move(const ChainCosts& costs) {
  int64_t staying = 0;
  for (size_t index = 0; index + 1 < costs.size(); ++index) {
    const int64_t bytes = costs[index].output_bytes;
    staying += bytes < OffloadOptions().min_bytes() ? bytes : 0;
  }
  return staying <= OffloadOptions().min_bytes();
}

/// The plan of a chain whose activations are on the host: each stage is a region, so that backward
/// has the activations of one on the device, and recomputes each once.
CheckpointPlan one_stage_at_a_time(const ChainCosts& costs) {
  using Piece = CheckpointPlan::Piece;
  std::vector<Piece> pieces;
  for (size_t index = 0; index < costs.size(); ++index) {
    const Piece stage{static_cast<int64_t>(index), {}};
    const bool joins = costs[index].changes_input;  // no region begins with it
    if (!costs[index].has_gradient || (joins && (pieces.empty() || !pieces.back().is_region()))) {
      pieces.push_back(stage);
    } else if (joins) {
      pieces.back().pieces.push_back(stage);
    } else {
      pieces.push_back({-1, {stage}});
    }
  }
  if (pieces.back().is_region()) {  // backward begins with it: nothing would be gained
    const std::vector<Piece> last = std::move(pieces.back().pieces);
    pieces.pop_back();
    pieces.insert(pieces.end(), last.begin(), last.end());
  }
  return CheckpointPlan(std::move(pieces));
}

}  // namespace

TrainerOptions MemoryPlanning::smallest(const TrainerOptions& asked, const OptimizerSpec& optimizer,
                                        c10::Device device, int ranks) {
  TrainerOptions options = asked;
  if (asked.memory().is_unlimited()) {
    return options;
  }
  const auto take = [&](const TrainerOptions& other) {
    options = are_valid(other) ? other : options;
  };
  if (ranks > 1 && optimizer.fused() != nullptr && !asked.reproducible()) {
    take(TrainerOptions(options).shard_optimizer(true));
  }
  if (!device.is_cpu() && optimizer.fused() != nullptr) {
    take(TrainerOptions(options).offload_states(true));
  }
  return options;
}

MemoryPlanning::MemoryPlanning(const TrainerOptions& options, c10::Device device,
                               const Agreement& agreement, const ActivationPlanning& activations,
                               TrainingStorage& storage)
    : options_(options),
      device_(device),
      agreement_(agreement),
      activations_(activations),
      storage_(storage),
      moves_activations_(is_active() && !device.is_cpu()),
      host_room_(free_host_memory() / host_share / agreement.communicator().local_size()) {}

int MemoryPlanning::ranks() const {
  return device_.is_cpu() ? agreement_.communicator().local_size() : 1;
}

int64_t MemoryPlanning::budget() const {
  return options_.memory().bytes() / ranks();
}

int64_t MemoryPlanning::model_bytes() const {
  return total_bytes(storage_.trainable().frozen) + total_bytes(storage_.model().buffers());
}

int64_t MemoryPlanning::state_bytes(bool offloads) const {
  const ArenaMemory memory = storage_.memory();
  const int64_t all = total(memory) + model_bytes();
  return offloads ? all - memory.on_host + storage_.staging_bytes() : all;
}

Error MemoryPlanning::too_small(int64_t needed, const std::string& what) const {
  return Error(
      c10::str("TrainerOptions.memory(", options_.memory().text(), ") is too small: ", what,
               " needs ", bytes_text(needed * ranks()), " (", needed * ranks(), " bytes)",
               ranks() > 1 ? c10::str(" for the ", ranks(), " ranks of a node") : "",
               "; give more, use smaller micro-batches and more of them (accumulate), or "
               "more ranks"),
      ExitCode::out_of_memory);
}

void MemoryPlanning::begin() {
  if (!is_active()) {
    return;
  }
  // With one or two buckets the states pass through as much memory as they need.
  if (options_.offload_states() &&
      agreement_.any(state_bytes(/*offloads=*/false) <= state_bytes(/*offloads=*/true))) {
    take_states_to_device();
  }
  agreement_.attempt([&] {
    if (const int64_t held = state_bytes(options_.offload_states()); held > budget()) {
      throw too_small(held, "what a Trainer holds between two micro-batches");
    }
  });
}

void MemoryPlanning::take_states_to_device() {
  storage_.take_states_to_device();
  options_.offload_states(false);
}

void MemoryPlanning::begin_window() {
  if (window_ && is_whole_) {
    least_ = std::exchange(window_, std::nullopt);
    excess_ = 0;
    if (moves_activations_ && have_activations_room()) {
      moves_activations_ = false;  // the next window measures how much they need
      if (at::HostAllocator* host = at::getHostAllocator(device_.type())) {
        host->empty_cache();
      }
      if (const PlannedChain::Planned* planned = activations_.planned()) {
        activations_.use(plan_checkpoints(planned->costs, least_activation_bytes(planned->costs)));
      }
    } else {
      is_due_ = true;
    }
  }
  window_.reset();
  is_whole_ = true;
  if (!is_active() || windows_ == window_of_states || ++windows_ < window_of_states ||
      !options_.offload_states()) {
    return;
  }
  bool gains = false;
  agreement_.attempt([&] { gains = gains_on_device(); });
  if (!agreement_.any(!gains)) {
    take_states_to_device();
    is_due_ = true;
  }
}

/// At most all that a micro-batch has moved was there at the same time.
bool MemoryPlanning::have_activations_room() const {
  return least_->whole + moved_bytes_ <= budget() - state_bytes(options_.offload_states());
}

/// The move needs the new weights beside the old ones.
bool MemoryPlanning::gains_on_device() const {
  if (!chosen_ || moves_activations_) {
    return false;
  }
  const int64_t moving =
      state_bytes(/*offloads=*/true) + storage_.memory().weights + storage_.memory().on_host;
  const Choice there = choose(/*offloads=*/false);
  return there.fits && moving <= budget() && there.seconds < chosen_->seconds + copy_seconds();
}

double MemoryPlanning::copy_seconds() const {
  const int64_t bytes = storage_.memory().on_host;
  const int64_t sample = std::clamp<int64_t>(bytes, 1, int64_t{64} << 20);
  const auto host = at::empty({sample}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  const auto there = at::empty({sample}, at::TensorOptions().dtype(at::kByte).device(device_));
  const c10::impl::VirtualGuardImpl device(device_.type());
  device.synchronizeDevice(device_.index());
  const auto start = std::chrono::steady_clock::now();
  there.copy_(host, /*non_blocking=*/true);
  device.synchronizeDevice(device_.index());
  return seconds_since(start) * 2.0 * static_cast<double>(bytes) / static_cast<double>(sample);
}

int64_t MemoryPlanning::least_peak() const {
  // With activations on the host no smaller plan makes up for what a prediction misses.
  return std::max(least_->whole + (moves_activations_ ? excess_ : 0), first_peak_);
}

std::vector<at::Tensor> MemoryPlanning::model_tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& entries :
       {storage_.trainable().parameters, storage_.trainable().frozen, storage_.model().buffers()}) {
    for (const ModelTensor& entry : entries) {
      tensors.push_back(entry.tensor);
    }
  }
  return tensors;
}

void MemoryPlanning::run_here(const std::function<void()>& micro_batch) {
  if (!moves_activations_) {
    micro_batch();
    return;
  }
  const OffloadActivations offload(model_tensors(), OffloadOptions().max_bytes(host_room_));
  micro_batch();
  moved_bytes_ = std::max(moved_bytes_, offload.figures().bytes);
}

bool MemoryPlanning::run(const std::function<void()>& micro_batch) {
  if (!is_active()) {
    micro_batch();
    return false;
  }
  const auto bytes_of_input = [this] {
    const PlannedChain::Planned* planned = activations_.planned();
    return planned != nullptr ? planned->input_bytes : 0;
  };
  if (chosen_ && watched_ == watched_micro_batches && bytes_of_input() == input_bytes_) {
    run_here(micro_batch);
    return false;
  }
  const ActivationPlanning::Peaks peaks =
      activations_.measure(device_.type(), [&] { run_here(micro_batch); });
  const std::size_t bytes = bytes_of_input();
  if ((activations_.planned() != nullptr && !peaks.has_chain) || bytes != input_bytes_) {
    is_whole_ = false;  // this micro-batch has measured the stages of the chain
    input_bytes_ = bytes;
    first_peak_ = std::max(first_peak_, peaks.whole);
    chosen_.reset();
    moves_activations_ = !device_.is_cpu();  // a larger input may need it
    const PlannedChain::Planned* planned = activations_.planned();
    if (moves_activations_ && planned != nullptr && inputs_move(planned->costs)) {
      activations_.use(one_stage_at_a_time(planned->costs));
    }
    return false;
  }
  if (!chosen_) {
    window_ = window_ ? larger(*window_, peaks) : peaks;
    return false;
  }
  measured_peak_ = std::max(measured_peak_, peaks.whole);
  if (peaks.whole > chosen_->peak_bytes) {
    excess_ += peaks.whole - chosen_->peak_bytes;
    is_due_ = (chosen_->plan.has_value() || moves_activations_) &&
              peaks.whole > budget() - state_bytes(options_.offload_states());
  }
  return ++watched_ == watched_micro_batches;
}

MemoryPlanning::Choice MemoryPlanning::choose(bool offloads) const {
  Choice choice;
  const int64_t room = budget() - state_bytes(offloads);
  choice.peak_bytes = least_->whole;
  choice.fits = least_peak() <= room;
  const PlannedChain::Planned* planned = activations_.planned();
  if (planned == nullptr || planned->costs.empty()) {
    return choice;
  }
  if (moves_activations_) {  // on the device nothing is left to keep instead of recomputing it
    choice.plan = planned->plan;
    return choice;
  }
  const auto micro_batches = static_cast<double>(options_.accumulate());
  const int64_t following = least_->between;
  const int64_t least = least_activation_bytes(planned->costs, following);
  // Of the model before the chain, and what the prediction misses.
  const int64_t beside =
      least_->before + std::max<int64_t>(0, least_->whole - least_->before - least) + excess_;
  FollowedPlan best = plan_followed_checkpoints(planned->costs, following, room - beside);
  choice.seconds = micro_batches * best.plan.predict(planned->costs).seconds;
  choice.peak_bytes = beside + best.peak_bytes;
  choice.plan = std::move(best.plan);
  return choice;
}

void MemoryPlanning::plan() {
  if (!std::exchange(is_due_, false)) {
    return;
  }
  chosen_ = choose(options_.offload_states());
  if (!chosen_->fits) {
    throw too_small(
        state_bytes(options_.offload_states()) + std::max(chosen_->peak_bytes, first_peak_),
        "a step that keeps as few activations as possible");
  }
  if (chosen_->plan) {
    activations_.use(*chosen_->plan);
  }
  measured_peak_ = 0;
  watched_ = 0;
  write_plan_file();
}

/// Best effort: the plan is made anew by each run.
void MemoryPlanning::write_plan_file() const {
  const std::string& folder = options_.snapshots().folder();
  if (!folder.empty() && agreement_.communicator().rank() == 0 &&
      std::filesystem::is_directory(folder)) {
    std::ofstream(std::filesystem::path(folder) / "memory_plan.txt") << report() << "\n";
  }
}

std::string MemoryPlanning::report() const {
  if (!chosen_) {
    return {};
  }
  const int64_t state = state_bytes(options_.offload_states());
  std::ostringstream out;
  out << "memory  budget " << options_.memory().text();
  if (ranks() > 1) {
    out << " for the " << ranks() << " ranks of a node, " << bytes_text(budget()) << " each";
  }
  out << "\n  held       " << bytes_text(state) << ": " << memory_line(storage_.memory());
  if (model_bytes() > 0) {
    out << ", frozen and buffers " << bytes_text(model_bytes());
  }
  out << "\n  states     "
      << (options_.offload_states()    ? "on the host"
          : options_.shard_optimizer() ? "sharded over the ranks"
                                       : "on each rank")
      << (storage_.arena().shared() ? ", one copy of the weights for a node" : "");
  const PlannedChain::Planned* planned = activations_.planned();
  out << "\n  recompute  ";
  if (!chosen_->plan || planned == nullptr || !planned->plain) {
    out << "nothing: the model has no chain that could be planned";
  } else {
    out.precision(3);
    out << "plan " << chosen_->plan->text() << ", "
        << 100 * (planned->predicted->seconds / planned->plain->seconds - 1)
        << " % of the chain's time";
  }
  if (moves_activations_) {
    out << "\n  moved      " << bytes_text(moved_bytes_)
        << " of activations to the host in each micro-batch";
  }
  out << "\n  peak       predicted " << bytes_text(state + chosen_->peak_bytes);
  if (watched_ > 0) {
    out << ", measured " << bytes_text(state + measured_peak_);
  }
  out << ", of at least " << bytes_text(state + least_peak()) << " with this place of the states";
  if (const auto resident = resident_memory()) {
    out << "\n  process    " << bytes_text(*resident) << " resident, with its libraries";
  }
  return out.str();
}

}  // namespace lockstep::detail
