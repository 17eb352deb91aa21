#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/odd_ranks.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <lockstep/runtime/step/impl/option_fields.h>
#include <lockstep/runtime/storage/impl/replicas.h>

#include <map>
#include <sstream>

namespace lockstep::detail {
const std::vector<RefusedPair>& refused_pairs() {
  static const std::vector<RefusedPair> pairs = {
      {"leaves", "reproducible", "false", "needs reproducible(true); without it, use accumulate"},
      {"share_weights", "shard_optimizer", "false",
       "needs shard_optimizer(true): each rank updates its shard of the one copy"},
      {"memory", "activation_budget", "",
       "a memory budget plans the activations too; leave activation_budget out"},
      {"memory", "cuda_graph", "", "a memory budget measures on the host; use cuda_graph(false)"},
      {"cuda_graph", "accumulate", "", "a window is captured whole; accumulate must be 1, is "},
      {"cuda_graph", "losses", "", "a window is captured whole; losses must be 1, is "},
      {"cuda_graph", "digest_log", "", "a digest_log reads every loss"},
      {"cuda_graph", "uneven_data", "", "with uneven_data the host decides what a window counts"},
      {"cuda_graph", "unused", "detect",
       "with UnusedParameters::detect the host decides what is updated"},
      {"cuda_graph", "activation_budget", "", "an activation_budget measures on the host"},
      {"cuda_graph", "offload_states", "",
       "with offload_states the host waits for each update; use offload_states(false)"},
      {"reproducible", "cuda_graph", "",
       "a captured graph repeats the random numbers of its ranks; use cuda_graph(false)"},
      {"reproducible", "uneven_data", "",
       "with uneven_data ranks run out of data by themselves; deal the samples with "
       "LoaderOptions().leaves(), which also shares out the end of an epoch"},
      {"reproducible", "precision.predivide", "",
       "the sum is exact and knows no predivide; use predivide(1)"},
      {"reproducible", "buffers", "none",
       "with BufferPolicy::none each rank keeps buffers of its own; use BufferPolicy::broadcast"},
      {"local_updates", "shard_optimizer", "",
       "each rank updates all of its own weights; use shard_optimizer(false)"},
      {"local_updates", "offload_states", "",
       "a round needs the weights of all buckets at once; use offload_states(false)"},
      {"local_updates", "cuda_graph", "",
       "a captured graph cannot exchange weights in some windows only; use cuda_graph(false)"},
      {"local_updates", "reproducible", "",
       "updates with a rank's own gradients depend on the number of ranks; use "
       "reproducible(false)"},
      {"local_updates", "losses", "", "losses must be 1, is "},
      {"local_updates", "ema", "", "each rank would average its own weights; use ema(0)"},
      {"local_updates", "digest_log", "",
       "at the end of a round the memory of the gradients has differences of weights; leave "
       "digest_log out"},
      {"local_updates", "precision.wire", "fp16 bf16",
       "differences of weights travel in fp32; leave Precision::wire() out (on some processors "
       "Precision::automatic() calls it: use O0, O1 or O2)"},
  };
  return pairs;
}

void require_same_fields(const std::string& what, const OptionFields& fields,
                         const Agreement& agreement) {
  std::string mine;
  for (const auto& [name, value] : fields) {
    mine += name + " is " + value + '\0';
  }
  if (same_on_all_ranks(digest_of(mine.data(), mine.size()), agreement.communicator())) {
    return;
  }
  const std::vector<std::string> texts = agreement.communicator().all_gather_bytes(mine);
  std::map<std::string, std::map<std::string, std::vector<int>>> ranks_of;  // by name and value
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream parts(texts[rank]);
    for (std::string part; std::getline(parts, part, '\0');) {
      const size_t middle = part.find(" is ");
      ranks_of[part.substr(0, middle)][part.substr(middle + 4)].push_back(static_cast<int>(rank));
    }
  }
  std::string differences;
  std::string unset = "?";  // an option that some ranks do not set: what is in it says no more
  for (const auto& [name, values] : ranks_of) {
    if (values.begin()->second.size() == texts.size() || name.rfind(unset + ".", 0) == 0) {
      continue;
    }
    unset = values.count("unset") != 0 ? name : unset;
    differences += "\n  " + name + " is";
    const char* separator = " ";
    for (const auto& [value, ranks] : values) {
      differences += separator + value + " on " + rank_names(ranks);
      separator = ", ";
    }
  }
  throw Error(c10::str("the options of ", what, " differ between ranks:", differences,
                       "\nPass the same options on every rank"),
              ExitCode::usage, odd_ranks(texts)->ranks);
}

void require_same_options(const TrainerOptions& options, const OptimizerSpec& optimizer,
                          const std::vector<ModelTensor>& parameters, const Agreement& agreement) {
  OptionFields fields;
  agreement.attempt([&] {  // predicates of groups are code of the program, and may throw
    fields = fields_of(options);
    fields.emplace_back("optimizer", optimizer.describe());
    for (const ModelTensor& entry : parameters) {
      fields.emplace_back("optimizer group of " + entry.name,
                          c10::str(optimizer.group_of(entry),
                                   optimizer.needs_whole(entry) ? ", updated whole" : ""));
    }
  });
  require_same_fields("the Trainer", fields, agreement);
}

}  // namespace lockstep::detail

namespace lockstep {

void LocalUpdates::validate() const {
  detail::require_ranges(detail::rows_of(*this));
  LOCKSTEP_CHECK(!outer_nesterov_ || outer_momentum_ > 0.0,
                 "LocalUpdates.outer_nesterov needs an outer_momentum > 0");
}

std::string LocalUpdates::describe() const {
  return detail::described(detail::rows_of(*this));
}

void ReduceOnPlateau::validate() const {
  detail::require_ranges(detail::rows_of(*this));
}

std::string ReduceOnPlateau::describe() const {
  return detail::described(detail::rows_of(*this));
}

void TrainerOptions::validate() const {
  precision_.validate();
  detail::require_ranges(detail::rows_of(*this));
  if (local_updates_) {
    local_updates_->validate();
  }
  LOCKSTEP_CHECK(
      activation_chain_.is_empty() || !activation_budget_.is_unlimited() || !memory_.is_unlimited(),
      "TrainerOptions.activation_chain needs an activation_budget, or a memory budget");
  LOCKSTEP_CHECK(!snapshots_.memory_folder().empty() || snapshots_.memory_every() == 0,
                 "SnapshotOptions.memory_folder is empty; name a folder in memory, as /dev/shm");
  const auto values_of = [](const TrainerOptions& options) {
    const detail::OptionFields fields = detail::fields_of(options);
    return std::map<std::string, std::string>(fields.begin(), fields.end());
  };
  const auto values = values_of(*this);
  const auto defaults = values_of(TrainerOptions());
  for (const detail::RefusedPair& pair : detail::refused_pairs()) {
    const std::string& value = values.at(pair.with);
    const std::string& unset = defaults.at(pair.with);
    const bool refuses = pair.values.empty() ? value != unset
                                             : (" " + pair.values + " ").find(" " + value + " ") !=
                                                   std::string::npos;
    const std::string& asked = values.at(pair.option);
    const bool asks = asked != defaults.at(pair.option) && asked != "false";
    LOCKSTEP_CHECK(!asks || !refuses, "TrainerOptions.", pair.option,
                   pair.why.rfind("needs", 0) == 0 ? " " : ": ", pair.why,
                   pair.why.back() == ' ' ? value : "");
  }
}

std::string TrainerOptions::describe() const {
  return detail::described(detail::rows_of(*this));
}

}  // namespace lockstep
