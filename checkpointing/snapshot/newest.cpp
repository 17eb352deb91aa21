#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/outcome.h>

#include <algorithm>
#include <sstream>

namespace lockstep::snapshot {
namespace {

/// The name in `latest`; empty if the file cannot be read.
std::string read_latest(const std::string& folder) {
  try {
    const MappedFile file(folder + "/" + kLatestName);
    const std::string_view text = file.text().substr(0, 64);
    return std::string(text.substr(0, text.find('\n')));
  } catch (const Error&) {
    return "";
  }
}

/// First line: the name in `latest`. Then the snapshots that rank 0 sees, newest first.
std::string list(const std::string& folder) {
  std::string text = read_latest(folder) + "\n";
  const std::vector<SnapshotId> ids = ids_in(folder);
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    text += step_folder(*id) + "\n";
  }
  return text;
}

}  // namespace

Opened open_verified(const std::string& path, const Communicator& ranks) {
  std::optional<Snapshot> candidate;
  const detail::Agreement agreement(ranks, ExitCode::snapshot);
  const detail::Outcome mine = agreement.outcome_of([&] {
    candidate.emplace(path);
    candidate->verify(ranks.rank(), ranks.size());
    return "";
  });
  if (const auto failure = detail::failure_in(agreement.exchange(mine))) {
    return {std::nullopt, failure->what()};
  }
  candidate->trust();
  return {std::move(candidate), ""};
}

Newest find_newest(const std::string& folder, const Communicator& ranks) {
  const std::vector<std::string> lists = detail::Agreement(ranks, ExitCode::snapshot)
                                             .gather("looking for snapshots in " + folder, [&] {
                                               return ranks.rank() == 0 ? list(folder) : "";
                                             });
  std::istringstream lines(lists[0]);
  std::string latest;
  std::getline(lines, latest);
  Newest newest;
  for (std::string name; !newest.snapshot && std::getline(lines, name);) {
    Opened opened = open_verified(folder + "/" + name, ranks);
    newest.snapshot = std::move(opened.snapshot);
    if (!newest.snapshot) {
      newest.notes.push_back("skipped " + folder + "/" + name + ": " + opened.failure);
    } else if (!latest.empty() && latest != name) {
      newest.notes.push_back("`latest` in " + folder + " names " + latest + ", but the newest " +
                             "complete snapshot is " + name);
    }
  }
  return newest;
}

}  // namespace lockstep::snapshot
