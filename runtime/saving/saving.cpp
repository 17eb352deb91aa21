#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/save_job.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/odd_ranks.h>
#include <lockstep/runtime/process/impl/failed_saves.h>
#include <lockstep/runtime/saving/impl/saving.h>
#include <lockstep/runtime/saving/impl/snapshot_search.h>

#include <cmath>
#include <exception>
#include <iostream>
#include <limits>
#include <utility>

namespace lockstep::detail {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

snapshot::WriterOptions writer_options(const SnapshotOptions& options) {
  return snapshot::WriterOptions().keep(options.keep()).min_shard_bytes(options.min_shard_bytes());
}

std::string on_the_disk_only(const std::string& reason) {
  return reason + "; from now on snapshots are saved on the disk only";
}

/// The metric of a snapshot, for a further snapshot of its update. `keep` decides its direction.
std::optional<MetricValue> metric_of(const snapshot::Manifest& manifest, const KeepOptions& keep) {
  if (!manifest.metric) {
    return std::nullopt;
  }
  return MetricValue(*manifest.metric, keep.lower_is_better().value_or(manifest.lower_is_better));
}

}  // namespace

Saving::Saving(TrainingState state, Communicator control, SnapshotOptions options)
    : state_(std::move(state)),
      agreement_(std::move(control), ExitCode::snapshot),
      options_(std::move(options)) {
  options_.folder(snapshot::absolute_path(options_.folder()));
  options_.memory_folder(snapshot::absolute_path(options_.memory_folder()));
  if (!options_.folder().empty()) {
    require_storable();
    open_writers(options_.folder(), writer_options(options_));
  }
}

Saving::~Saving() {
  if (std::uncaught_exceptions() > 0) {
    return;
  }
  try {
    finish();
    if (memory_ && memory_->belongs()) {
      memory_->remove();
    }
  } catch (const std::exception& error) {
    std::cerr << "the last snapshot was not completed: " << error.what() << std::endl;
  }
}

void Saving::require_storable() {
  agreement_.attempt("snapshots of this model", [&] { state_.require_storable(); });
}

void Saving::open_writers(const std::string& folder, snapshot::WriterOptions options) {
  writer_.reset();
  memory_.reset();
  folder_ = folder;
  if (options_.memory_every() > 0) {
    memory_ =
        std::make_unique<snapshot::MemorySnapshots>(agreement_, options_.memory_folder(), folder);
  }
  writer_ =
      std::make_unique<snapshot::Writer>(agreement_.communicator(), folder, std::move(options));
}

void Saving::require_own_folder() {
  if (is_own_folder_ || folder_.empty()) {
    return;
  }
  LOCKSTEP_CHECK_CODE(!has_snapshots(folder_, agreement_.communicator()), ExitCode::snapshot,
                      folder_,
                      " holds the snapshots of another run; go on from them with resume(), or name "
                      "another folder");
  is_own_folder_ = true;
}

void Saving::save(int64_t update, std::optional<MetricValue> metric) {
  LOCKSTEP_CHECK(!folder_.empty(),
                 "save(): no folder is known; name one with TrainerOptions().snapshots("
                 "SnapshotOptions().folder(...)), or call resume(folder) first");
  require_own_folder();
  if (metric && !std::isfinite(metric->value)) {
    if (prints()) {
      std::cerr << "lockstep: the metric of update " << update << " is " << metric->value
                << ", which cannot be compared; the update is saved without a metric" << std::endl;
    }
    metric.reset();
  }
  const bool is_further = completes_save_of(update);
  const snapshot::Content content = state_.content();
  if (is_further && snapshot::SaveJob::matches_complete(writer_->folder(), content, saved_->id)) {
    save_metric(metric);
    return;
  }
  if (is_further && !metric) {
    metric = saved_->metric;
  }
  const snapshot::SnapshotId id = writer_->folder().next_of(update);
  if (options_.asynchronous()) {
    note_end(writer_->start(content, id, metric).previous);
  } else {
    try {
      note_end(writer_->save(content, id, metric));
    } catch (const Error& error) {
      note_save(folder_, error);
      throw;
    }
  }
  saved_before_ = std::exchange(saved_, Saved{id, metric});
}

bool Saving::completes_save_of(int64_t update) {
  if (!newest_is_of(update)) {
    return false;
  }
  note_end(writer_->wait());
  return newest_is_of(update);
}

void Saving::save_metric(const std::optional<MetricValue>& metric) {
  const std::vector<std::string> metrics =
      agreement_.gather("saving a metric", [&] { return snapshot::text_of_metric(metric); });
  if (const auto odd = odd_ranks(metrics)) {
    throw Error(c10::str("save(): the metric of rank ", odd->first, " is ", metrics[odd->first],
                         ", that of rank ", odd->reference, " is ", metrics[odd->reference],
                         "; pass the same metric on every rank"),
                ExitCode::usage, odd->ranks);
  }
  if (metric && (!saved_->metric || saved_->metric->value != metric->value)) {
    writer_->folder().set_metric(saved_->id, *metric);
    saved_->metric = metric;
  }
}

bool Saving::is_memory_due() {
  if (!memory_ || ++windows_ < options_.memory_every()) {
    return false;
  }
  windows_ = 0;
  return true;
}

void Saving::save_in_memory(int64_t update) {
  require_own_folder();
  if (newest_is_of(update) || memory_->has(update)) {
    return;  // all updates since then were skipped
  }
  const snapshot::Content content = state_.content();
  try {
    if (!memory_->is_open()) {
      memory_->open(writer_->folder().options().run(), update - 1, options_.min_shard_bytes());
    }
    note_memory_end(memory_->save(content, update));
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error& error) {  // the same on every rank
    stop_saving_in_memory(error.what());
  }
}

bool Saving::is_phase_done() const {
  return (is_disk_pending() || is_memory_pending()) &&
         (!is_disk_pending() || writer_->is_phase_done()) &&
         (!is_memory_pending() || memory_->is_phase_done());
}

void Saving::advance() {
  if (is_disk_pending()) {
    note_end(writer_->advance());
  }
  if (is_memory_pending()) {
    note_memory_end(memory_->advance());
  }
}

void Saving::finish() {
  if (is_disk_pending()) {
    note_end(writer_->wait());
  }
  if (is_memory_pending()) {
    note_memory_end(memory_->wait());
  }
}

void Saving::print(const std::vector<std::string>& lines) const {
  for (const std::string& line : prints() ? lines : std::vector<std::string>()) {
    std::cerr << line << std::endl;
  }
}

void Saving::note_memory_end(const std::optional<snapshot::SaveReport>& report) {
  if (report) {
    print(report->warnings);
  }
  if (report && report->error) {
    stop_saving_in_memory(*report->error);
  }
}

void Saving::stop_saving_in_memory(const std::string& reason) {
  print({on_the_disk_only(reason)});
  drop_memory();
}

void Saving::drop_memory() {
  if (memory_ && memory_->is_open()) {
    memory_->remove();
  }
  memory_.reset();
}

void Saving::note_end(std::optional<snapshot::SaveReport> report) {
  if (!report) {
    return;
  }
  if (report->error) {
    saved_ = std::exchange(saved_before_, std::nullopt);
    note_save(folder_, Error(*report->error, report->code, report->ranks));
  } else {
    note_save(folder_, std::nullopt);
    if (memory_) {
      memory_->forget(0, report->step);
    }
  }
  if (report->error) {
    print({*report->error});
  }
  print(report->warnings);
  ended_ = std::move(report);
}

ResumeReport Saving::resume(const std::string& given) {
  const std::string path = snapshot::absolute_path(given.empty() ? options_.folder() : given);
  LOCKSTEP_CHECK(!path.empty(), "resume(): name the folder of the run");
  if (folder_.empty()) {
    require_storable();
  }
  finish();
  ResumeReport report;
  const auto [saved, is_in_memory] = choose_source(path, report.notes);
  if (saved) {
    load(*saved, report);
    reopen_writers(*saved, is_in_memory ? path : parent_of(saved->path()), is_in_memory);
  } else if (may_write_to(path) && folder_ != path) {
    open_writers(path, writer_options(options_));
  }
  print(report.notes);
  return report;
}

Saving::Source Saving::choose_source(const std::string& path, std::vector<std::string>& notes) {
  snapshot::Newest newest = find_snapshot(path, agreement_.communicator());
  notes = newest.notes;
  bool is_in_memory = false;
  if (options_.memory_every() > 0 && may_write_to(path)) {
    const int64_t on_disk = newest.snapshot ? newest.snapshot->manifest().step : -1;
    const snapshot::MemorySnapshots memory(agreement_, options_.memory_folder(), path);
    if (const std::string reason = memory.why_not_private(); !reason.empty()) {
      notes.push_back(on_the_disk_only(reason));
      snapshot::MemorySnapshots::forget_all_of(path, agreement_);
      drop_memory();
      options_.memory_every(0);
    } else if (auto found = memory.newest(on_disk, notes)) {
      newest.snapshot = std::move(found);
      is_in_memory = true;
    }
  }
  LOCKSTEP_CHECK_CODE(
      newest.snapshot || newest.notes.empty(), ExitCode::snapshot, "none of the snapshots in ",
      path, " can be used; move them away to start from the beginning:", joined(newest.notes));
  return {std::move(newest.snapshot), is_in_memory};
}

void Saving::load(const Snapshot& saved, ResumeReport& report) {
  const std::function<void()> take_back = state_.match_trainable(saved);
  try {
    agreement_.attempt("resuming from " + saved.path(), [&] { state_.check(saved); });
  } catch (const Error&) {
    take_back();
    throw;
  }
  agreement_.attempt("resuming from " + saved.path(), [&] {
    const std::vector<std::string> differences = state_.load(saved);
    report.notes.insert(report.notes.end(), differences.begin(), differences.end());
  });
  report.resumed = true;
  report.update = saved.manifest().step;
  report.path = saved.path();
}

void Saving::reopen_writers(const Snapshot& saved, const std::string& run_folder,
                            bool is_in_memory) {
  if (!may_write_to(run_folder)) {
    return;
  }
  const int64_t update = saved.manifest().step;
  const auto id = snapshot::id_of(saved.path().substr(saved.path().rfind('/') + 1));
  const snapshot::SnapshotId before_all(update, -1);
  const snapshot::SnapshotId after_all(update, std::numeric_limits<int64_t>::max());
  open_writers(run_folder, writer_options(options_)
                               .run(saved.manifest().run)
                               .loaded_from(is_in_memory ? "" : saved.path())
                               .resumed(is_in_memory ? before_all : id.value_or(after_all)));
  is_own_folder_ = true;
  saved_.reset();
  saved_before_.reset();
  if (is_in_memory) {  // save() still has to bring this update to the disk
    memory_->resume_from(update);
    return;
  }
  if (id) {
    saved_ = Saved{*id, metric_of(saved.manifest(), options_.keep())};
  }
  snapshot::MemorySnapshots::forget_all_of(run_folder, agreement_);
  if (memory_) {
    memory_->remove();
  }
}

snapshot::LoadReport Saving::load_weights(const std::string& given,
                                          const snapshot::LoadOptions& options) {
  const std::string path = snapshot::absolute_path(given);
  const OpenedWeights source = open_weights(path, agreement_.communicator(), options.averaged);
  const std::string doing = "loading weights from " + path;
  std::optional<snapshot::TensorLoad> load;
  agreement_.attempt(doing, [&] { load.emplace(state_.match(source, options)); });
  std::vector<std::string> notes;
  const bool has_names = !options.name_in_source && !options.transposed;
  agreement_.attempt(doing, [&] {
    state_.load_weights(*load, has_names ? source.optimizer.get() : nullptr, notes);
  });
  print(notes);
  return load->report();
}

}  // namespace lockstep::detail
