#include <lockstep/checkpointing/snapshot/format/cover.h>
#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/save_job.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/impl/outcome.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <set>
#include <sstream>
#include <utility>

namespace lockstep::snapshot {
namespace {

/// One text of all lines; line breaks inside of a line become spaces.
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (std::string line : lines) {
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += line + "\n";
  }
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string first_difference(const std::vector<std::string>& mine,
                             const std::vector<std::string>& first) {
  const auto [own, other] = std::mismatch(mine.begin(), mine.end(), first.begin(), first.end());
  const auto quoted = [](auto line, auto end) { return line == end ? "nothing more" : *line; };
  return c10::str("it would save ", quoted(own, mine.end()), ", where rank 0 has ",
                  quoted(other, first.end()));
}

/// Without the metric and the files.
Manifest manifest_of(const RunFolder& folder, const Content& content, int64_t step) {
  Manifest manifest;
  manifest.run = folder.options().run();
  manifest.step = step;
  manifest.world_size = folder.ranks().size();
  manifest.texts = content.texts();
  for (const auto& [name, section] : content.sections()) {
    if (!section.tied.empty()) {
      manifest.tied[name] = section.tied;
    }
  }
  return manifest;
}

/// Collective: throws Error on every rank if one has no memory for what it writes.
std::vector<PlannedFile> files_of(const RunFolder& folder, const Content& content) {
  std::vector<PlannedFile> files = plan_files(content, folder.ranks().rank(), folder.ranks().size(),
                                              folder.options().min_shard_bytes());
  const std::exception_ptr problem = fetch_values(content, files);
  folder.agreement().attempt("copying what is to be saved", [&] {
    if (problem) {
      std::rethrow_exception(problem);
    }
  });
  return files;
}

/// The records of these files of this rank; `describe` gives sizes and digests.
std::string records_of(const RunFolder& folder, const std::vector<PlannedFile>& files,
                       const std::function<WrittenFile(const PlannedFile&)>& describe) {
  FileRecords records;
  for (const PlannedFile& file : files) {
    const WrittenFile written = describe(file);
    records[file.name] = {file.section,  file.role,      folder.ranks().rank(),
                          written.bytes, written.header, written.tensors,
                          file.slices};
  }
  return render_records(records);
}

}  // namespace

std::string text_of_metric(const std::optional<MetricValue>& metric) {
  std::ostringstream text;
  if (metric) {
    text << std::setprecision(17) << metric->value;
  }
  return metric ? text.str() : "none";
}

SaveJob::SaveJob(RunFolder& folder, const Content& content, const SnapshotId& id,
                 const std::optional<MetricValue>& metric)
    : folder_(&folder), id_(id), manifest_(manifest_of(folder, content, id.step)) {
  report_.step = id.step;
  report_.path = final_path();
  std::vector<std::string> lines = shared_lines(content);
  lines.push_back("snapshot " + step_folder(id));
  lines.push_back("metric " + text_of_metric(metric));
  compare_content(lines, metric);
  for (const auto& [name, section] : content.sections()) {
    for (const auto& [tensor, value] : section.whole) {
      to_be_saved_.emplace_back(name, tensor);
    }
  }
  planned_ = files_of(folder, content);
}

bool SaveJob::matches_complete(RunFolder& folder, const Content& content, const SnapshotId& id) {
  const std::string path = folder.path() + "/" + step_folder(id) + "/" + kManifestName;
  Manifest manifest = manifest_of(folder, content, id.step);
  const std::vector<PlannedFile> files = files_of(folder, content);
  for (const std::string& records :
       folder.agreement().gather("comparing the state with " + path, [&] {
         return records_of(folder, files, [](const PlannedFile& file) {
           return describe_safetensors(file.tensors, file.metadata);
         });
       })) {
    manifest.files.merge(parse_records(records, "what a rank would write"));
  }
  bool is_other = false;
  if (folder.commits()) {
    try {
      const MappedFile file(path);
      const Manifest saved = Manifest::parse(file.text(), path);
      manifest.metric = saved.metric;
      manifest.lower_is_better = saved.lower_is_better;
      is_other = manifest.render() != saved.render();
    } catch (const Error&) {
      is_other = true;  // a file was removed or changed
    }
  }
  return !folder.agreement().any(is_other);
}

std::string SaveJob::final_path() const {
  return folder_->path() + "/" + step_folder(id_);
}

std::string SaveJob::temporary_path() const {
  return temporary_name(final_path(), manifest_.run);
}

void SaveJob::refuse_existing() const {
  if (exists(final_path())) {
    reject(final_path(),
           "exists already, and a complete snapshot is never overwritten; move it "
           "away, or save under another step or folder");
  }
}

void SaveJob::compare_content(const std::vector<std::string>& lines,
                              const std::optional<MetricValue>& metric) {
  const std::string doing = "saving " + final_path();
  const std::string text = joined(lines);
  const std::vector<std::string> digests = folder_->agreement().gather(doing, [&] {
    LOCKSTEP_CHECK(manifest_.step >= 0, "a snapshot cannot have the step ", manifest_.step);
    if (metric) {
      LOCKSTEP_CHECK(std::isfinite(metric->value), "the metric is ", metric->value,
                     ", which cannot be compared; save without one");
      manifest_.metric = metric->value;
      manifest_.lower_is_better = folder_->prefers_lower(*metric);
    }
    if (folder_->commits()) {
      folder_->lock().require_held();
      refuse_existing();
      remove_leftovers(folder_->files(), folder_->path(), manifest_.run);
    }
    return digest_of(text);
  });
  if (std::equal(digests.begin() + 1, digests.end(), digests.begin())) {
    return;
  }
  const std::vector<detail::Outcome> texts = folder_->agreement().exchange({std::nullopt, text});
  std::vector<detail::Outcome> verdicts(texts.size());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank].text != texts[0].text) {
      verdicts[rank].error.emplace(
          first_difference(split_lines(texts[rank].text), split_lines(texts[0].text)));
    }
  }
  throw Error(doing + ": ranks differ in what must be the same: " +
              detail::failure_in(verdicts).value_or(Error("the digests do")).what());
}

std::string SaveJob::write_files() {
  FileSystem& files = folder_->files();
  files.make_folder(temporary_path());
  return records_of(*folder_, planned_, [&](const PlannedFile& file) {
    return write_safetensors(files, temporary_path() + "/" + file.name, file.tensors,
                             file.metadata);
  });
}

void SaveJob::write() {
  outcome_ = folder_->agreement().outcome_of([&] { return write_files(); });
  forget_tensors();
}

void SaveJob::note_failure(const std::exception_ptr& failure) {
  outcome_ =
      folder_->agreement().outcome_of([&]() -> std::string { std::rethrow_exception(failure); });
}

std::vector<detail::Outcome> SaveJob::exchange_outcomes() {
  std::vector<detail::Outcome> outcomes = folder_->agreement().exchange(outcome_);
  if (const auto failure = detail::failure_in(outcomes)) {
    report_.error = failure->what();
    report_.code = failure->code();
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (outcomes[rank].error) {
        report_.ranks.push_back(static_cast<int>(rank));
      }
    }
  }
  outcome_ = {};
  return outcomes;
}

/// All ranks have the same texts, so all come to the same result.
void SaveJob::take_records(const std::vector<detail::Outcome>& outcomes) {
  for (const detail::Outcome& outcome : outcomes) {
    for (auto& [name, record] : parse_records(outcome.text, "what a rank wrote")) {
      report_.bytes += record.bytes;
      if (!manifest_.files.emplace(name, record).second) {
        reject(name, "was written by two ranks");
      }
    }
  }
  check_cover(manifest_.files, temporary_path());
  check_slices(
      manifest_.files,
      [&](const std::string& file, const std::string& tensor) {
        return manifest_.files.at(file).slices.at(tensor).elements;
      },
      temporary_path());
  std::set<std::pair<std::string, std::string>> saved;
  for (const auto& [name, record] : manifest_.files) {
    for (const auto& [tensor, digest] : record.tensors) {
      if (record.role == FileRole::whole) {
        saved.emplace(record.section, tensor);
      }
    }
  }
  for (const auto& [section, tensor] : to_be_saved_) {
    if (saved.count({section, tensor}) == 0) {
      reject(temporary_path(), "no rank has written tensor \"", tensor, "\" of section ", section);
    }
  }
}

bool SaveJob::agree() {
  const std::vector<detail::Outcome> outcomes = exchange_outcomes();
  if (!report_.error) {
    try {
      take_records(outcomes);
    } catch (const Error& error) {
      report_.error = c10::str(error.what(),
                               "; what the ranks wrote is not the whole state once. Use the same "
                               "min_shard_bytes and the same build of lockstep on every rank");
      report_.code = ExitCode::snapshot;
    }
  }
  if (report_.error) {
    outcome_.text = folder_->commits() ? remove_temporary() : "";
    for (const detail::Outcome& outcome :
         folder_->agreement().exchange(std::exchange(outcome_, {}))) {
      *report_.error += outcome.text;
    }
    return false;
  }
  return true;
}

void SaveJob::put_in_place() {
  FileSystem& files = folder_->files();
  const std::string temporary = temporary_path();
  for (const auto& [name, text] : index_files(manifest_.files)) {
    write_file(files, temporary + "/" + name, text);
  }
  const std::string manifest = manifest_.render();
  write_file(files, temporary + "/" + kManifestName, manifest);
  if (const auto& key = folder_->options().key()) {
    write_file(files, temporary + "/" + kSignatureName, key->signature_of(manifest));
  }
  files.sync_folder(temporary);
  refuse_existing();
  files.rename(temporary, final_path());
  files.sync_folder(folder_->path());
}

std::string SaveJob::name_latest_and_rotate() {
  FileSystem& files = folder_->files();
  const std::string latest = folder_->path() + "/" + kLatestName;
  std::vector<std::string> warnings;
  try {
    write_file(files, temporary_name(latest, manifest_.run), step_folder(id_) + "\n");
    files.rename(temporary_name(latest, manifest_.run), latest);
    files.sync_folder(folder_->path());
  } catch (const std::exception& error) {
    warnings.push_back(std::string("the snapshot is complete, but `latest` does not name it: ") +
                       error.what());
  }
  const auto more = folder_->rotation().committed(id_, manifest_);
  warnings.insert(warnings.end(), more.begin(), more.end());
  return joined(warnings);
}

void SaveJob::commit() {
  if (!folder_->commits()) {
    return;
  }
  outcome_ = folder_->agreement().outcome_of([&] {
    put_in_place();
    return "";
  });
  if (outcome_.error) {
    outcome_.error.emplace(std::string(outcome_.error->what()) + remove_temporary(),
                           outcome_.error->code());
  } else {
    outcome_.text = name_latest_and_rotate();
    if (!folder_->options().node_local()) {
      lockstep::detail::give(lockstep::detail::LifeSign::snapshot,
                             std::filesystem::absolute(final_path()).string());
    }
  }
}

SaveReport SaveJob::finish() {
  if (!report_.error) {
    const std::vector<detail::Outcome> outcomes = exchange_outcomes();
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      for (const std::string& line : split_lines(outcomes[rank].text)) {
        report_.warnings.push_back(rank == 0 ? line : c10::str("rank ", rank, ": ", line));
      }
    }
  }
  if (report_.error) {
    report_.error = "saving " + final_path() + ": " + *report_.error;
    report_.warnings.clear();
  }
  return report_;
}

std::string SaveJob::remove_temporary() const {
  try {
    if (exists(temporary_path())) {
      remove_folder_of_files(folder_->files(), temporary_path());
    }
    return "";
  } catch (const std::exception& error) {
    return c10::str("; the next save removes what is left of this one: ", error.what());
  }
}

}  // namespace lockstep::snapshot
