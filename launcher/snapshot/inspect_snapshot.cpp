#include "snapshot/inspect_snapshot.h"

#include <lockstep/checkpointing/snapshot/impl/averaged_model.h>
#include <lockstep/checkpointing/snapshot/impl/best.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>
#include <utility>
#include <vector>

namespace lockstep::launcher {
namespace {

using snapshot::FileRecord;
using snapshot::FileRole;
using snapshot::Manifest;

struct SectionTotals {
  size_t files = 0;
  size_t tensors = 0;
  uint64_t bytes = 0;
};

std::string mebibytes(uint64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return text.str();
}

void print_manifest(const Manifest& manifest, std::ostream& out) {
  out << "run        " << manifest.run << "\n"
      << "step       " << manifest.step << "\n"
      << "ranks      " << manifest.world_size << "\n";
  if (manifest.metric) {
    out << "metric     " << *manifest.metric << "\n";
  }
  for (const auto& [name, text] : manifest.texts) {
    out << std::left << std::setw(10) << name << ' ' << text << "\n";
  }
  std::map<std::string, SectionTotals> sections;
  for (const auto& [file, record] : manifest.files) {
    SectionTotals& totals = sections[record.section];
    ++totals.files;
    totals.tensors += record.tensors.size();
    totals.bytes += record.bytes;
  }
  for (const auto& [name, totals] : sections) {
    out << std::left << std::setw(10) << name << ' ' << totals.tensors << " tensors, "
        << mebibytes(totals.bytes) << " in " << totals.files
        << (totals.files == 1 ? " file" : " files") << "\n";
  }
}

void print_tensors(const Snapshot& saved, std::ostream& out) {
  for (const std::string& section : saved.sections()) {
    const snapshot::SnapshotSection source = saved.section(section);
    for (const std::string& name : source.names()) {
      out << section << "  " << name << "  " << source.dtype(name) << ' '
          << at::IntArrayRef(source.sizes(name)) << "\n";
    }
  }
}

void list_run(const std::string& folder, std::ostream& out) {
  size_t found = 0;
  size_t whole = 0;
  for (const snapshot::SnapshotId& id : snapshot::ids_in(folder)) {
    const std::string name = snapshot::step_folder(id);
    ++found;
    out << name << "  ";
    try {
      const Snapshot saved(folder + "/" + name);
      saved.verify();
      uint64_t bytes = 0;
      for (const auto& [file, record] : saved.manifest().files) {
        bytes += record.bytes;
      }
      out << "whole, " << mebibytes(bytes) << ", " << saved.manifest().world_size
          << (saved.manifest().world_size == 1 ? " rank, run " : " ranks, run ")
          << saved.manifest().run;
      if (saved.manifest().metric) {
        out << ", metric " << *saved.manifest().metric;
      }
      out << "\n";
      ++whole;
    } catch (const Error& error) {
      out << "cannot be used: " << error.what() << "\n";
    }
  }
  LOCKSTEP_CHECK_CODE(found > 0, ExitCode::snapshot, folder,
                      ": neither a snapshot nor the folder of a run that has any");
  LOCKSTEP_CHECK_CODE(whole > 0, ExitCode::snapshot, folder, ": no snapshot in it can be used");
}

/// `path`, or the snapshot that it names, if it is the file RUN/latest.
std::string followed(const std::string& path) {
  const std::filesystem::path file(path);
  if (file.filename() != snapshot::kLatestName || !std::filesystem::is_regular_file(file)) {
    return path;
  }
  std::string name;
  std::getline(std::ifstream(file), name);
  return file.parent_path() / name;
}

/// `path`, or the newest undamaged snapshot in it if it is the folder of a run.
std::string one_snapshot(const std::string& given) {
  const std::string path = followed(given);
  if (snapshot::exists(path + "/" + snapshot::kManifestName)) {
    return path;
  }
  const std::vector<snapshot::SnapshotId> ids = snapshot::ids_in(path);
  std::string newest_problem;
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    const std::string found = path + "/" + snapshot::step_folder(*id);
    try {
      Snapshot(found).verify();
      return found;
    } catch (const Error& error) {  // try an older one
      newest_problem = newest_problem.empty() ? std::string("; ") + error.what() : newest_problem;
    }
  }
  throw Error(
      path + ": neither a snapshot nor the folder of a run with a whole one" + newest_problem,
      ExitCode::snapshot);
}

std::unique_ptr<snapshot::TensorSource> source_of(const Snapshot& saved, const Export& wanted) {
  if (wanted.averaged) {
    return std::make_unique<snapshot::AveragedModel>(saved);
  }
  return std::make_unique<snapshot::SnapshotSection>(saved.section(wanted.section));
}

/// A description and a digest of each tensor; for slices and own tensors by rank.
std::map<std::string, std::string> contents(const Manifest& manifest) {
  std::map<std::string, std::string> all;
  for (const auto& [name, text] : manifest.texts) {
    all["text " + name] = text;
  }
  for (const auto& [file, record] : manifest.files) {
    const std::string rank =
        record.role == FileRole::whole ? "" : " of rank " + std::to_string(record.rank);
    for (const auto& [name, digest] : record.tensors) {
      all[record.section + "  " + name + rank] = digest;
    }
  }
  return all;
}

}  // namespace

void inspect_snapshot(const std::string& given, bool tensors, std::ostream& out) {
  const std::string path = followed(given);
  if (!snapshot::exists(path + "/" + snapshot::kManifestName)) {
    list_run(path, out);
    return;
  }
  const Snapshot saved(path);
  print_manifest(saved.manifest(), out);
  if (tensors) {
    print_tensors(saved, out);
  }
  saved.verify();
  out << "whole: every byte has the digest that was written\n";
}

bool compare_snapshots(const std::string& path, const std::string& other, std::ostream& out) {
  const auto first = contents(Snapshot(followed(path)).manifest());
  const auto second = contents(Snapshot(followed(other)).manifest());
  size_t differences = 0;
  for (const auto& [name, value] : first) {
    const auto found = second.find(name);
    if (found == second.end()) {
      out << "only in the first:  " << name << "\n";
    } else if (found->second != value) {
      out << "differs:            " << name << "\n";
    } else {
      continue;
    }
    ++differences;
  }
  for (const auto& [name, value] : second) {
    if (first.count(name) == 0) {
      out << "only in the second: " << name << "\n";
      ++differences;
    }
  }
  out << differences << " differences among " << first.size() << " and " << second.size()
      << " texts and tensors\n";
  return differences == 0;
}

void export_snapshot(const Export& wanted, std::ostream& out) {
  const std::string path =
      wanted.best ? snapshot::find_best(wanted.folder) : one_snapshot(wanted.folder);
  const Snapshot saved(path);
  const std::unique_ptr<snapshot::TensorSource> source = source_of(saved, wanted);
  std::map<std::string, std::string> tied;
  if (const auto found = saved.manifest().tied.find(wanted.section);
      found != saved.manifest().tied.end()) {
    tied = found->second;
  }
  snapshot::NamedTensors tensors;
  for (const std::string& name : source->names()) {
    if (tied.count(name) == 0) {
      tensors.emplace_back(name, source->read(name));
    }
  }
  LOCKSTEP_CHECK_CODE(!tensors.empty(), ExitCode::snapshot, path, " has no section ",
                      wanted.section, "; it has: ", c10::Join(", ", saved.sections()));
  std::map<std::string, std::string> metadata = tied;
  metadata["format"] = "pt";
  snapshot::save_safetensors(wanted.file, tensors, metadata);
  out << tensors.size() << (wanted.averaged ? " averaged tensors of " : " tensors of ") << path
      << " written to " << wanted.file << "\n";
}

}  // namespace lockstep::launcher
