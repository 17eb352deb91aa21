#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/memory_snapshots.h>
#include <lockstep/checkpointing/snapshot/node_memory/files_of_nodes.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/outcome.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <utility>

namespace lockstep::snapshot {
namespace {

constexpr char kMarkerName[] = "memory";
constexpr char kTokenName[] = "token";
constexpr size_t kChunk = size_t{64} << 20;  // bytes of one broadcast

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string text_of(const std::string& path) {
  if (!exists(path)) {
    return "";
  }
  const MappedFile file(path);
  return std::string(file.text());
}

std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name)) {
      steps.push_back(*step);
    }
  }
  return steps;
}

std::string random_token() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

}  // namespace

MemorySnapshots::MemorySnapshots(detail::Agreement agreement, const std::string& memory,
                                 const std::string& run_folder, size_t chunk_bytes)
    : agreement_(std::move(agreement)),
      run_folder_(absolute_path(run_folder)),
      folder_(memory, {"lockstep.memory-" + std::to_string(geteuid()),
                       digest_of(run_folder_) + "-" + host_name()}),
      chunk_bytes_(chunk_bytes) {}

std::string MemorySnapshots::why_not_private() const {
  const detail::Outcome mine = agreement_.outcome_of([&] {
    if (is_first_of_node()) {
      folder_.check_content();
    }
    if (agreement_.communicator().rank() == 0 && RunKey::is_in(run_folder_)) {
      RunKey::of(run_folder_);
    }
    return "";
  });
  const auto failure = detail::failure_in(agreement_.exchange(mine));
  return failure ? failure->what() : "";
}

MemorySnapshots::Mark MemorySnapshots::mark() const {
  const Communicator& ranks = agreement_.communicator();
  std::istringstream words(agreement_.gather("looking for snapshots in memory", [&] {
    if (ranks.rank() != 0) {
      return std::string();
    }
    const std::string text = text_of(run_folder_ + "/" + kMarkerName);
    return RunKey::is_in(run_folder_) ? text + " " + RunKey::of(run_folder_).text() : text;
  })[0]);
  Mark mark;
  words >> mark.run >> mark.token;
  if (std::string key; words >> key) {
    mark.key.emplace(key, run_folder_);
  }
  return mark;
}

bool MemorySnapshots::has_token(const std::string& token) const {
  std::istringstream words(text_of(folder() + "/" + kTokenName));
  for (std::string word; words >> word;) {
    if (word == token) {
      return true;
    }
  }
  return false;
}

void MemorySnapshots::remove_steps(const std::function<bool(int64_t)>& condition) const {
  for (const int64_t step : is_first_of_node() ? steps_in(folder()) : std::vector<int64_t>()) {
    if (condition(step)) {
      remove_folder_of_files(*folder_.files(), folder() + "/" + step_folder(step));
    }
  }
}

/// The steps on all nodes with this token, newest first.
std::vector<int64_t> MemorySnapshots::steps_of_nodes(const std::string& token) const {
  const std::vector<std::string> lists =
      agreement_.gather("looking for snapshots in " + folder(), [&] {
        std::string text;
        const bool belongs = is_first_of_node() && has_token(token);
        for (const int64_t step : belongs ? steps_in(folder()) : std::vector<int64_t>()) {
          text += std::to_string(step) + " ";
        }
        return text;
      });
  std::set<int64_t, std::greater<>> steps;
  for (const std::string& list : lists) {
    std::istringstream words(list);
    for (int64_t step = 0; words >> step;) {
      steps.insert(step);
    }
  }
  return {steps.begin(), steps.end()};
}

/// Copies to each node the files that only other nodes have.
void MemorySnapshots::complete(const std::string& path, const std::string& token) const {
  const Communicator& ranks = agreement_.communicator();
  const auto system = folder_.files();
  const FilesOfNodes nodes(path, agreement_.gather("reading " + path, [&]() -> std::string {
    if (!is_first_of_node()) {
      return "";
    }
    folder_.check_content();
    if (exists(path) && !has_token(token)) {
      remove_folder_of_files(*system, path);
    }
    return FilesOfNodes::of_this_node(path);
  }));
  // A rank that fails here still takes part in every broadcast.
  detail::Outcome mine;
  const auto attempt = [&](const std::function<void()>& action) {
    if (!mine.error) {
      mine = agreement_.outcome_of([&] {
        action();
        return "";
      });
    }
  };
  for (const std::string& name : nodes.wanted()) {
    const FilesOfNodes::File& file = nodes.file(name);
    const std::string own = path + "/" + name;
    std::unique_ptr<OutputFile> out;
    std::unique_ptr<MappedFile> source;
    attempt([&] {
      if (nodes.lacks(static_cast<size_t>(ranks.rank()), name)) {
        system->make_folder(path);
        remove_if_there(*system, own + ".part");
        out = system->create_file(own + ".part", kPrivateFileMode);
      } else if (ranks.rank() == file.owner) {
        source = std::make_unique<MappedFile>(own);
      }
    });
    for (size_t begin = 0; begin < file.bytes; begin += kChunk) {
      const auto count = static_cast<int64_t>(std::min(kChunk, file.bytes - begin));
      const at::Tensor chunk = source ? at::from_blob(source->data() + begin, {count}, at::kByte)
                                      : at::zeros({count}, at::kByte);
      ranks.broadcast(chunk, file.owner).wait();
      attempt([&] {
        if (out) {
          out->write(chunk.const_data_ptr(), static_cast<size_t>(count));
        }
      });
    }
    attempt([&] {
      if (out) {
        out->close();
        system->rename(own + ".part", own);
      }
    });
  }
  agreement_.raise_if_any(mine.error);
}

/// The snapshot is complete on every node: a node that newly takes part gets the token.
void MemorySnapshots::adopt(int64_t step, const std::string& token) const {
  if (!is_first_of_node() || has_token(token)) {
    return;
  }
  remove_steps([&](int64_t other) { return other != step; });
  replace_file(*folder_.files(), folder() + "/" + kTokenName, token);
}

std::optional<Snapshot> MemorySnapshots::newest(int64_t after,
                                                std::vector<std::string>& notes) const {
  if (const std::string reason = why_not_private(); !reason.empty()) {
    notes.push_back(reason);
    return std::nullopt;
  }
  const auto [run, token, key] = mark();
  if (run.empty()) {
    return std::nullopt;
  }
  const Communicator& ranks = agreement_.communicator();
  for (const int64_t step : steps_of_nodes(token)) {
    if (step <= after) {
      break;
    }
    const std::string path = folder() + "/" + step_folder(step);
    try {
      complete(path, token);
      std::optional<Snapshot> found;
      agreement_.attempt("reading " + path, [&, &expected = run, &signer = key] {
        LOCKSTEP_CHECK_CODE(signer, ExitCode::snapshot, "the key in ", run_folder_, " is gone");
        signer->check(path);
        found.emplace(path);
        const std::string& of = found->manifest().run;
        LOCKSTEP_CHECK_CODE(of == expected, ExitCode::snapshot, "it belongs to the run ", of,
                            ", this one is ", expected);
        found->verify(ranks.local_rank(), ranks.local_size());
      });
      agreement_.attempt("adopting " + path, [&, &run_token = token] { adopt(step, run_token); });
      found->trust();
      return found;
    } catch (const CommunicationError&) {
      throw;
    } catch (const Error& error) {
      notes.push_back("skipped " + path + ": " + error.what());
    }
  }
  return std::nullopt;
}

void MemorySnapshots::open(const std::string& run, int64_t update, int64_t min_shard_bytes) {
  const Mark before = mark();
  const bool goes_on = before.run == run && !before.token.empty();
  const std::string token =
      agreement_.gather("snapshots in memory", [] { return random_token(); })[0];
  const auto files = folder_.files();
  agreement_.attempt("snapshots in memory", [&] {
    if (is_first_of_node()) {
      files->make_folder(folder());
      folder_.check_content();
      lock_ = std::make_unique<FolderLock>(folder());
      folder_.close_to_others(kLockName);
    }
  });
  agreement_.attempt("snapshots in memory", [&] {
    const bool belongs = goes_on && has_token(before.token);
    remove_steps([&](int64_t step) {
      try {
        const std::string path = folder() + "/" + step_folder(step);
        return !belongs || step > update || Snapshot(path).manifest().run != run;
      } catch (const Error&) {
        return true;  // incomplete: files of a lost node
      }
    });
    if (is_first_of_node()) {
      replace_file(*files, folder() + "/" + kTokenName,
                   goes_on ? token + " " + before.token : token);
    }
  });
  const std::string key = agreement_.gather("snapshots in memory", [&] {
    if (agreement_.communicator().rank() != 0) {
      return std::string();
    }
    const auto disk = FileSystem::current();
    const std::string own = RunKey::made_in(*disk, run_folder_).text();
    replace_file(*disk, run_folder_ + "/" + kMarkerName, run + " " + token);
    disk->sync_folder(run_folder_);
    return own;
  })[0];
  forgotten_ = -1;
  writer_ = std::make_unique<Writer>(
      agreement_.communicator(), folder(),
      WriterOptions()
          .run(run)
          .files(files)
          .node_local(true)
          .key(RunKey(key, run_folder_))
          .min_shard_bytes(min_shard_bytes)
          .keep(KeepOptions().last(2)));  // nodes do not commit at the same time
  copies_ = std::make_unique<NeighbourCopies>(agreement_, folder_, chunk_bytes_);
  if (!copies_->exist()) {
    copies_.reset();
  }
}

std::optional<SaveReport> MemorySnapshots::save(const Content& content, int64_t update) {
  auto before = wait();
  writer_->start(content, update);
  newest_ = update;
  return before;
}

void MemorySnapshots::resume_from(int64_t update) {
  newest_ = update;
  forget(update + 1, std::numeric_limits<int64_t>::max());
}

bool MemorySnapshots::is_phase_done() const {
  return is_open() && (copied_ ? copies_->is_chunk_done() : writer_->is_phase_done());
}

std::optional<SaveReport> MemorySnapshots::advance() {
  if (!copied_) {
    auto report = writer_->advance();
    if (!report || report->error) {
      return report;
    }
    if (report->step <= forgotten_) {
      forget(report->step, report->step);
      return report;
    }
    if (!copies_) {
      return report;
    }
    copies_->start(report->path);
    copied_ = std::move(report);
    return std::nullopt;
  }
  const auto reason = copies_->advance();
  if (!reason) {
    return std::nullopt;
  }
  if (!reason->empty()) {
    copied_->warnings.push_back(*reason +
                                "; from now on the loss of a node takes the snapshots in memory "
                                "with it, and the run would go on from the disk");
    copies_.reset();
  }
  return std::exchange(copied_, std::nullopt);
}

std::optional<SaveReport> MemorySnapshots::wait() {
  std::optional<SaveReport> report;
  while (is_pending()) {
    report = advance();
  }
  return report;
}

void MemorySnapshots::forget(int64_t first, int64_t last) noexcept {
  if (copied_ && copied_->step >= first && copied_->step <= last) {
    copies_->abandon();
    copied_.reset();
  }
  if (first == 0) {
    forgotten_ = std::max(forgotten_, last);
  }
  try {
    remove_steps([&](int64_t step) { return step >= first && step <= last; });
  } catch (const std::exception&) {
    return;  // an old snapshot does no harm: resume() takes the newest
  }
}

void MemorySnapshots::forget_all_of(const std::string& run_folder,
                                    const detail::Agreement& agreement) {
  agreement.attempt("snapshots in memory", [&] {
    const std::string marker = run_folder + "/" + kMarkerName;
    if (agreement.communicator().rank() == 0 && exists(marker)) {
      FileSystem::current()->remove_file(marker);
    }
  });
}

void MemorySnapshots::remove() noexcept {
  writer_.reset();
  newest_.reset();
  forget(0, std::numeric_limits<int64_t>::max());
  if (is_first_of_node()) {
    try {
      folder_.check_content();
      std::filesystem::remove_all(folder());
    } catch (const std::exception&) {
      // Files of other users stay; that must not end the run.
    }
  }
  lock_.reset();
}

}  // namespace lockstep::snapshot
