#include <lockstep/amp/grouped.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/core/rank_names.h>
#include <lockstep/runtime/process/replicas.h>
#include <lockstep/runtime/step/option_fields.h>

#include <algorithm>
#include <map>
#include <optional>

namespace lockstep::detail {
namespace {

std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string text_of(double value) {
  return amp::shortest(value);
}

std::string text_of(const std::string& value) {
  return "\"" + value + "\"";
}

template <typename Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return c10::str(static_cast<int>(value));
  } else {
    return c10::str(value);
  }
}

template <typename Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : "unset";
}

OptionFields fields_of(const LocalUpdates& local) {
  return {{"updates", text_of(local.updates())},
          {"outer_lr", text_of(local.outer_lr())},
          {"outer_momentum", text_of(local.outer_momentum())},
          {"outer_nesterov", text_of(local.outer_nesterov())},
          {"average_moments", text_of(local.average_moments())}};
}

OptionFields fields_of(const ReduceOnPlateau& plateau) {
  return {{"factor", text_of(plateau.factor())},
          {"patience", text_of(plateau.patience())},
          {"mode", text_of(plateau.mode())},
          {"threshold", text_of(plateau.threshold())},
          {"threshold_mode", text_of(plateau.threshold_mode())},
          {"cooldown", text_of(plateau.cooldown())},
          {"min_lr", text_of(plateau.min_lr())},
          {"eps", text_of(plateau.eps())}};
}

OptionFields fields_of(const BucketOptions& buckets) {
  return {{"first_bucket_bytes", text_of(buckets.first_bucket_bytes())},
          {"bucket_bytes", text_of(buckets.bucket_bytes())}};
}

OptionFields fields_of(const SnapshotOptions& snapshots) {
  const KeepOptions& keep = snapshots.keep();
  return {{"folder", text_of(snapshots.folder())},
          {"asynchronous", text_of(snapshots.asynchronous())},
          {"keep.last", text_of(keep.last())},
          {"keep.every", text_of(keep.every())},
          {"keep.best", text_of(keep.best())},
          {"keep.lower_is_better", text_of(keep.lower_is_better())},
          {"min_shard_bytes", text_of(snapshots.min_shard_bytes())},
          {"memory_every", text_of(snapshots.memory_every())},
          {"memory_folder", text_of(snapshots.memory_folder())}};
}

void add(OptionFields& fields, const std::string& name, const OptionFields& inner) {
  for (const auto& [field, value] : inner) {
    fields.emplace_back(c10::str(name, ".", field), value);
  }
}

template <typename Options>
void add(OptionFields& fields, const std::string& name, const std::optional<Options>& inner) {
  fields.emplace_back(name, inner ? "set" : "unset");
  if (inner) {
    add(fields, name, fields_of(*inner));
  }
}

std::string encode(const OptionFields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    text += name + '\0' + value + '\0';
  }
  return text;
}

std::map<std::string, std::string> decode(const std::string& text) {
  std::map<std::string, std::string> fields;
  for (size_t begin = 0; begin < text.size();) {
    const size_t middle = text.find('\0', begin);
    const size_t end = std::min(text.find('\0', middle + 1), text.size());
    fields[text.substr(begin, middle - begin)] = text.substr(middle + 1, end - middle - 1);
    begin = end + 1;
  }
  return fields;
}

}  // namespace

OptionFields fields_of(const TrainerOptions& options) {
  OptionFields fields = {{"accumulate", text_of(options.accumulate())},
                         {"losses", text_of(options.losses())},
                         {"reproducible", text_of(options.reproducible())},
                         {"leaves", text_of(options.leaves())},
                         {"clip_grad_norm", text_of(options.clip_grad_norm())},
                         {"clip_grad_value", text_of(options.clip_grad_value())},
                         {"ema", text_of(options.ema())},
                         {"shard_optimizer", text_of(options.shard_optimizer())},
                         {"schedule", options.schedule().describe()},
                         {"unused", text_of(options.unused())},
                         {"buffers", text_of(options.buffers())},
                         {"densify_sparse", text_of(options.densify_sparse())},
                         {"uneven_data", text_of(options.uneven_data())},
                         {"compare_replicas_every", text_of(options.compare_replicas_every())},
                         {"diagnose_after_skips", text_of(options.diagnose_after_skips())},
                         {"diagnosis_folder", text_of(options.diagnosis_folder())},
                         {"digest_log", text_of(options.digest_log())},
                         {"digest_every", text_of(options.digest_every())},
                         {"activation_budget", options.activation_budget().text()},
                         {"activation_chain", text_of(!options.activation_chain().is_empty())},
                         {"cuda_graph", text_of(options.cuda_graph())}};
  add(fields, "precision", options.precision().fields());
  add(fields, "buckets", fields_of(options.buckets()));
  add(fields, "snapshots", fields_of(options.snapshots()));
  add(fields, "local_updates", options.local_updates());
  add(fields, "reduce_on_plateau", options.reduce_on_plateau());
  return fields;
}

OptionFields fields_of(const DataParallelOptions& options) {
  OptionFields fields = {{"wire", text_of(options.wire())},
                         {"reduce", text_of(options.reduce().kind())},
                         {"reduce.predivide", text_of(options.reduce().predivide_factor())},
                         {"unused", text_of(options.unused())},
                         {"buffers", text_of(options.buffers())},
                         {"densify_sparse", text_of(options.densify_sparse())}};
  add(fields, "buckets", fields_of(options.buckets()));
  return fields;
}

OptionFields fields_of(const EpochOptions& options) {
  return {{"folder", text_of(options.folder())},
          {"epochs", text_of(options.epochs())},
          {"save_every", text_of(options.save_every())},
          {"validate_every", text_of(options.validate_every())},
          {"resume", text_of(options.resume())}};
}

void require_same_fields(const std::string& what, const OptionFields& fields,
                         const Agreement& agreement) {
  const std::string mine = encode(fields);
  if (same_on_all_ranks(digest_of(mine.data(), mine.size()), agreement.communicator())) {
    return;
  }
  std::map<std::string, std::map<std::string, std::vector<int>>> ranks_of;  // by name and value
  int rank = 0;
  for (const std::string& text : agreement.communicator().all_gather_bytes(mine)) {
    for (const auto& [name, value] : decode(text)) {
      ranks_of[name][value].push_back(rank);
    }
    ++rank;
  }
  std::string differences;
  for (const auto& [name, values] : ranks_of) {
    if (values.size() == 1 && static_cast<int>(values.begin()->second.size()) == rank) {
      continue;
    }
    differences += "\n  " + name + " is";
    const char* separator = " ";
    for (const auto& [value, ranks] : values) {
      differences += separator + value + " on " + rank_names(ranks);
      separator = ", ";
    }
  }
  LOCKSTEP_CHECK(false, "the options of ", what, " differ between ranks:", differences,
                 "\nPass the same options on every rank");
}

void require_same_options(const TrainerOptions& options, const OptimizerSpec& optimizer,
                          const std::vector<ModelTensor>& parameters, const Agreement& agreement) {
  OptionFields fields;
  agreement.attempt([&] {  // predicates of groups are the program's, and may throw
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
