#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/file_system.h>
#include <lockstep/checkpointing/snapshot/format/folder_names.h>
#include <lockstep/checkpointing/snapshot/mapped_file.h>
#include <lockstep/runtime/state/memory_snapshots.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr char kMarkerName[] = "memory";
constexpr char kTokenName[] = "token";
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

/// Replaces a small file at once.
void replace_file(snapshot::FileSystem& files, const std::string& path, const std::string& text) {
  const std::string temporary = path + ".part";
  if (snapshot::exists(temporary)) {
    files.remove_file(temporary);
  }
  snapshot::write_file(files, temporary, text);
  files.rename(temporary, path);
}

std::string drawn_word() {
  std::random_device random;
  return std::to_string(random()) + std::to_string(random());
}

}  // namespace

MemorySnapshots::MemorySnapshots(Agreement agreement, const std::string& memory,
                                 std::string run_folder)
    : agreement_(std::move(agreement)), run_folder_(std::move(run_folder)) {
  const std::string place = std::filesystem::absolute(run_folder_).lexically_normal().string();
  folder_ = memory + "/lockstep.memory-" + std::to_string(geteuid()) + "/" +
            snapshot::digest_of(place) + "-" + host_name();
}

MemorySnapshots::Mark MemorySnapshots::mark() const {
  const Communicator& ranks = agreement_.communicator();
  std::istringstream words(agreement_.gather("looking for snapshots in memory", [&] {
    return ranks.rank() == 0 ? text_of(run_folder_ + "/" + kMarkerName) : "";
  })[0]);
  Mark mark;
  words >> mark.run >> mark.token;
  return mark;
}

/// A node with another token has none.
std::vector<int64_t> MemorySnapshots::steps_on_all_nodes(const std::string& token) const {
  const std::vector<std::string> lists =
      agreement_.gather("looking for snapshots in " + folder_, [&] {
        std::string text = is_leader() ? "node" : "";
        const bool belongs = is_leader() && text_of(folder_ + "/" + kTokenName) == token;
        for (const int64_t step : belongs ? steps_in(folder_) : std::vector<int64_t>()) {
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
  // A rank that fails here still takes part in every broadcast.
  Outcome mine;
  const auto attempt = [&](const std::function<void()>& action) {
    if (!mine.error) {
      mine = agreement_.outcome_of([&] {
        action();
        return "";
      });
    }
  };
  const auto system = snapshot::FileSystem::current();
  for (const auto& [name, size] : sizes) {
    const bool wanted = std::any_of(files.begin(), files.end(), [&](const auto& of_rank) {
      return !of_rank.empty() && of_rank.count(name) == 0;
    });
    if (!wanted || name == snapshot::kManifestName) {
      continue;
    }
    const std::string file = path + "/" + name;
    const bool lacks = is_leader() && files[static_cast<size_t>(ranks.rank())].count(name) == 0;
    std::unique_ptr<snapshot::OutputFile> out;
    std::unique_ptr<snapshot::MappedFile> source;
    attempt([&] {
      if (lacks) {
        out = system->create_file(file + ".part");
      } else if (ranks.rank() == owner.at(name)) {
        source = std::make_unique<snapshot::MappedFile>(file);
      }
    });
    const size_t bytes = std::stoull(size);
    for (size_t begin = 0; begin < bytes; begin += kChunk) {
      const auto count = static_cast<int64_t>(std::min(kChunk, bytes - begin));
      const at::Tensor chunk = source ? at::from_blob(source->data() + begin, {count}, at::kByte)
                                      : at::zeros({count}, at::kByte);
      ranks.broadcast(chunk, owner.at(name)).wait();
      attempt([&] {
        if (out) {
          out->write(chunk.const_data_ptr(), static_cast<size_t>(count));
        }
      });
    }
    attempt([&] {
      if (out) {
        out->close();
        system->rename(file + ".part", file);
      }
    });
  }
  agreement_.raise_if_any(mine.error);
}

std::optional<Snapshot> MemorySnapshots::newest(int64_t after,
                                                std::vector<std::string>& notes) const {
  const auto [run, token] = mark();
  if (run.empty()) {
    return std::nullopt;
  }
  const Communicator& ranks = agreement_.communicator();
  for (const int64_t step : steps_on_all_nodes(token)) {
    if (step <= after) {
      break;
    }
    const std::string path = folder_ + "/" + snapshot::step_folder(step);
    try {
      complete(path);
      std::optional<Snapshot> found;
      agreement_.attempt("reading " + path, [&, &expected = run] {
        found.emplace(path);
        const std::string& of = found->manifest().run;
        LOCKSTEP_CHECK_CODE(of == expected, ExitCode::snapshot, "it belongs to the run ", of,
                            ", this one is ", expected);
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
  const Mark before = mark();
  const bool goes_on = before.run == run && !before.token.empty();
  const std::string token = agreement_.gather(
      "snapshots in memory", [&] { return goes_on ? before.token : drawn_word(); })[0];
  agreement_.attempt("snapshots in memory", [&] {
    const auto files = snapshot::FileSystem::current();
    for (const int64_t step : is_leader() ? steps_in(folder_) : std::vector<int64_t>()) {
      const std::string path = folder_ + "/" + snapshot::step_folder(step);
      bool is_ours = goes_on && step <= update;
      try {
        is_ours = is_ours && Snapshot(path).manifest().run == run;
      } catch (const Error&) {
        is_ours = false;  // incomplete: of a node that was lost
      }
      if (!is_ours) {
        snapshot::remove_folder_of_files(*files, path);
      }
    }
    if (is_leader()) {
      files->make_folder(folder_);
      replace_file(*files, folder_ + "/" + kTokenName, token);
    }
    if (agreement_.communicator().rank() == 0 && !goes_on) {
      replace_file(*files, run_folder_ + "/" + kMarkerName, run + " " + token);
      files->sync_folder(run_folder_);
    }
  });
  writer_ = std::make_unique<snapshot::AsyncWriter>(
      agreement_.communicator(), folder_,
      snapshot::WriterOptions()
          .run(run)
          .node_local(true)
          .min_shard_bytes(min_shard_bytes)
          .keep(snapshot::KeepOptions().last(2)));  // nodes commit one after another
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

void MemorySnapshots::forget_all_of(const std::string& run_folder, const Agreement& agreement) {
  agreement.attempt("snapshots in memory", [&] {
    const std::string marker = run_folder + "/" + kMarkerName;
    if (agreement.communicator().rank() == 0 && snapshot::exists(marker)) {
      snapshot::FileSystem::current()->remove_file(marker);
    }
  });
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
