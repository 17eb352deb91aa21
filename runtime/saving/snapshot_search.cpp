#include <lockstep/checkpointing/snapshot/impl/averaged_model.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/saving/impl/snapshot_search.h>

#include <optional>
#include <utility>

namespace lockstep::detail {
namespace {

bool is_snapshot(const std::string& path) {
  return snapshot::exists(path + "/" + snapshot::kManifestName);
}

bool holds_snapshots(const std::string& folder) {
  return !snapshot::ids_in(folder).empty();
}

bool as_rank_zero(const Communicator& ranks, const std::string& path,
                  bool (*holds)(const std::string&)) {
  const Agreement agreement(ranks, ExitCode::snapshot);
  bool found = false;
  agreement.attempt("looking at " + path, [&] { found = ranks.rank() == 0 && holds(path); });
  return agreement.any(found);
}

}  // namespace

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += "\n  " + line;
  }
  return text;
}

bool has_snapshots(const std::string& folder, const Communicator& ranks) {
  return as_rank_zero(ranks, folder, holds_snapshots);
}

snapshot::Newest find_snapshot(const std::string& path, const Communicator& ranks) {
  if (!as_rank_zero(ranks, path, is_snapshot)) {
    return snapshot::find_newest(path, ranks);
  }
  snapshot::Opened opened = snapshot::open_verified(path, ranks);
  LOCKSTEP_CHECK_CODE(opened.snapshot, ExitCode::snapshot, "reading ", path, ": ", opened.failure);
  return {std::move(opened.snapshot), {}};
}

OpenedWeights open_weights(const std::string& given, const Communicator& ranks, bool averaged) {
  const std::string path = snapshot::absolute_path(given);
  std::optional<Snapshot> saved;
  if (as_rank_zero(ranks, path, is_snapshot) || has_snapshots(path, ranks)) {
    snapshot::Newest newest = find_snapshot(path, ranks);
    LOCKSTEP_CHECK_CODE(newest.snapshot, ExitCode::snapshot, "none of the snapshots in ", path,
                        " can be used:", joined(newest.notes));
    saved = std::move(newest.snapshot);
  }
  OpenedWeights opened;
  Agreement(ranks, ExitCode::snapshot).attempt("loading weights from " + path, [&] {
    if (saved && averaged) {
      opened.weights = std::make_unique<snapshot::AveragedModel>(*saved);
    } else if (saved) {
      opened.weights = std::make_unique<snapshot::SnapshotSection>(saved->section("model"));
      opened.optimizer = std::make_unique<snapshot::SnapshotSection>(saved->section("optimizer"));
    } else {
      LOCKSTEP_CHECK_CODE(!averaged, ExitCode::snapshot, path,
                          " is no snapshot and no folder of a run, so it holds no moving averages; "
                          "leave LoadOptions::averaged out");
      opened.weights = std::make_unique<snapshot::ModelFiles>(path);
    }
  });
  return opened;
}

}  // namespace lockstep::detail
