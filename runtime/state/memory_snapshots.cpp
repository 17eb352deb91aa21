#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/file_system.h>
#include <lockstep/checkpointing/snapshot/format/folder_names.h>
#include <lockstep/checkpointing/snapshot/mapped_file.h>
#include <lockstep/runtime/state/memory_snapshots.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr char kMarkerName[] = "memory";
constexpr size_t kChunk = size_t{64} << 20;  // bytes of a broadcast

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string text_of(const std::string& path) {
  if (!snapshot::exists(path)) {
    return "";
  }
  const snapshot::MappedFile file(path);
  return std::string(file.text());
}

std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : snapshot::names_in(folder)) {
    if (const auto step = snapshot::step_of(name)) {
      steps.push_back(*step);
    }
  }
  return steps;
}

/// Name and size of each file of a snapshot; the manifest's digest in place of its size.
std::map<std::string, std::string> files_in(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const std::string& name : snapshot::names_in(path)) {
    files[name] = name == snapshot::kManifestName
                      ? snapshot::digest_of(text_of(path + "/" + name))
                      : std::to_string(std::filesystem::file_size(path + "/" + name));
  }
  return files;
}

/// Sends the bytes of a file from rank `root` to all ranks; `out`, if any, takes them.
void broadcast_file(const Communicator& ranks, int root, const std::string& path, size_t bytes,
                    snapshot::OutputFile* out) {
  std::unique_ptr<snapshot::MappedFile> source;
  if (ranks.rank() == root) {
    source = std::make_unique<snapshot::MappedFile>(path);
  }
  for (size_t begin = 0; begin < bytes; begin += kChunk) {
    const auto count = static_cast<int64_t>(std::min(kChunk, bytes - begin));
    const at::Tensor chunk = source ? at::from_blob(source->data() + begin, {count}, at::kByte)
                                    : at::empty({count}, at::kByte);
    ranks.broadcast(chunk, root).wait();
    if (out != nullptr) {
      out->write(chunk.const_data_ptr(), static_cast<size_t>(count));
    }
  }
}

}  // namespace

MemorySnapshots::MemorySnapshots(Agreement agreement, const std::string& memory,
                                 std::string run_folder)
    : agreement_(std::move(agreement)), run_folder_(std::move(run_folder)) {
  const std::string place = std::filesystem::absolute(run_folder_).lexically_normal().string();
  folder_ = memory + "/lockstep-memory-" + std::to_string(geteuid()) + "/" +
            snapshot::digest_of(place) + "-" + host_name();
}

std::string MemorySnapshots::run_on_disk() const {
  const Communicator& ranks = agreement_.communicator();
  return agreement_.gather("looking for snapshots in memory", [&] {
    return ranks.rank() == 0 ? text_of(run_folder_ + "/" + kMarkerName) : "";
  })[0];
}

std::vector<int64_t> MemorySnapshots::steps_on_all_nodes() const {
  const std::vector<std::string> lists =
      agreement_.gather("looking for snapshots in " + folder_, [&] {
        std::string text = is_leader() ? "node" : "";
        for (const int64_t step : is_leader() ? steps_in(folder_) : std::vector<int64_t>()) {
          text += " " + std::to_string(step);
        }
        return text;
      });
  std::map<int64_t, int> nodes_with;
  int nodes = 0;
  for (const std::string& list : lists) {
    std::istringstream words(list);
    std::string node;
    nodes += words >> node ? 1 : 0;
    for (int64_t step = 0; words >> step;) {
      ++nodes_with[step];
    }
  }
  std::vector<int64_t> steps;
  for (auto entry = nodes_with.rbegin(); entry != nodes_with.rend(); ++entry) {
    if (entry->second == nodes) {
      steps.push_back(entry->first);
    }
  }
  return steps;
}

/// Copies to each node the files that only other nodes have.
void MemorySnapshots::complete(const std::string& path) const {
  const Communicator& ranks = agreement_.communicator();
  const std::vector<std::string> lists = agreement_.gather("reading " + path, [&] {
    std::string text;
    if (is_leader()) {
      for (const auto& [name, size] : files_in(path)) {
        text += name + " " + size + "\n";
      }
    }
    return text;
  });
  std::map<std::string, std::string> sizes;
  std::map<std::string, int> owner;
  std::vector<std::map<std::string, std::string>> files(lists.size());
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    std::istringstream lines(lists[rank]);
    for (std::string name, size; lines >> name >> size;) {
      files[rank][name] = size;
      const auto known = sizes.emplace(name, size);
      owner.emplace(name, static_cast<int>(rank));
      LOCKSTEP_CHECK_CODE(known.first->second == size, ExitCode::snapshot, path, ": nodes have a ",
                          name, " of different content");
    }
  }
  Outcome mine;
  for (const auto& [name, size] : sizes) {
    const bool wanted = std::any_of(files.begin(), files.end(), [&](const auto& of_rank) {
      return !of_rank.empty() && of_rank.count(name) == 0;
    });
    if (!wanted || name == snapshot::kManifestName) {
      continue;
    }
    const bool lacks = is_leader() && files[static_cast<size_t>(ranks.rank())].count(name) == 0;
    std::unique_ptr<snapshot::OutputFile> out;
    const auto system = snapshot::FileSystem::current();
    if (lacks) {
      mine = agreement_.outcome_of([&] {
        out = system->create_file(path + "/" + name + ".part");
        return "";
      });
    }
    broadcast_file(ranks, owner.at(name), path + "/" + name, std::stoull(size), out.get());
    if (out != nullptr) {
      out->close();
      system->rename(path + "/" + name + ".part", path + "/" + name);
    }
  }
  agreement_.raise_if_any(mine.error);
}

std::optional<Snapshot> MemorySnapshots::newest(int64_t after,
                                                std::vector<std::string>& notes) const {
  const std::string run = run_on_disk();
  if (run.empty()) {
    return std::nullopt;
  }
  const Communicator& ranks = agreement_.communicator();
  for (const int64_t step : steps_on_all_nodes()) {
    if (step <= after) {
      break;
    }
    const std::string path = folder_ + "/" + snapshot::step_folder(step);
    try {
      complete(path);
      std::optional<Snapshot> found;
      agreement_.attempt("reading " + path, [&] {
        found.emplace(path);
        LOCKSTEP_CHECK_CODE(found->manifest().run == run, ExitCode::snapshot,
                            "it belongs to the run ", found->manifest().run, ", this one is ", run);
        found->verify(ranks.local_rank(), ranks.local_size());
      });
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
  agreement_.attempt("snapshots in memory", [&] {
    const auto files = snapshot::FileSystem::current();
    for (const int64_t step : is_leader() ? steps_in(folder_) : std::vector<int64_t>()) {
      const std::string path = folder_ + "/" + snapshot::step_folder(step);
      bool is_ours = step <= update;
      try {
        is_ours = is_ours && Snapshot(path).manifest().run == run;
      } catch (const Error&) {
        is_ours = false;  // incomplete: of a node that was lost
      }
      if (!is_ours) {
        snapshot::remove_folder_of_files(*files, path);
      }
    }
    const std::string marker = run_folder_ + "/" + kMarkerName;
    if (agreement_.communicator().rank() == 0 && text_of(marker) != run) {
      const std::string temporary = snapshot::temporary_name(marker, run);
      snapshot::write_file(*files, temporary, run);
      files->rename(temporary, marker);
      files->sync_folder(run_folder_);
    }
  });
  writer_ = std::make_unique<snapshot::AsyncWriter>(agreement_.communicator(), folder_,
                                                    snapshot::WriterOptions()
                                                        .run(run)
                                                        .node_local(true)
                                                        .min_shard_bytes(min_shard_bytes)
                                                        .keep(snapshot::KeepOptions().last(1)));
}

std::optional<snapshot::SaveReport> MemorySnapshots::save(const snapshot::Content& content,
                                                          int64_t update) {
  return writer_->save(content, update).previous;
}

void MemorySnapshots::forget(int64_t first, int64_t last) const noexcept {
  try {
    for (const int64_t step : is_leader() ? steps_in(folder_) : std::vector<int64_t>()) {
      if (step >= first && step <= last) {
        snapshot::remove_folder_of_files(*snapshot::FileSystem::current(),
                                         folder_ + "/" + snapshot::step_folder(step));
      }
    }
  } catch (const std::exception&) {
    return;  // an old snapshot in memory does no harm: resume() takes the newest
  }
}

void MemorySnapshots::remove() noexcept {
  writer_.reset();
  forget(0, std::numeric_limits<int64_t>::max());
  try {
    if (is_leader() && snapshot::exists(folder_)) {
      snapshot::remove_folder_of_files(*snapshot::FileSystem::current(), folder_);
    }
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace lockstep::detail
