#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/node_memory/files_of_nodes.h>
#include <lockstep/collectives/check.h>

#include <filesystem>
#include <sstream>

namespace lockstep::snapshot {
namespace {

bool is_unfinished(const std::string& name) {
  return name.size() > 5 && name.compare(name.size() - 5, 5, ".part") == 0;
}

}  // namespace

/// A line for each file: "has NAME BYTES CONTENT" (CONTENT: digest of the manifest, "-" for other
/// files) or "lacks NAME".
std::string FilesOfNodes::of_this_node(const std::string& path) {
  std::string text = "node\n";
  if (!exists(path + "/" + kManifestName)) {
    return text;
  }
  const std::string manifest(MappedFile(path + "/" + kManifestName).text());
  std::set<std::string> wanted;
  for (const auto& [name, record] : Manifest::parse(manifest, path).files) {
    wanted.insert(name);
  }
  for (const std::string& name : names_in(path)) {
    if (!is_unfinished(name)) {
      text += c10::str("has ", name, " ", std::filesystem::file_size(path + "/" + name), " ",
                       name == kManifestName ? digest_of(manifest) : "-", "\n");
      wanted.erase(name);
    }
  }
  for (const std::string& name : wanted) {
    text += "lacks " + name + "\n";
  }
  return text;
}

FilesOfNodes::FilesOfNodes(const std::string& path, const std::vector<std::string>& texts)
    : of_rank_(texts.size()), speaks_(texts.size()) {
  std::set<std::string> lacking;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream words(texts[rank]);
    for (std::string word, name; words >> word;) {
      if (word == "node") {
        speaks_[rank] = true;
      } else if (words >> name && word == "lacks") {
        lacking.insert(name);
      } else {
        File file;
        words >> file.bytes >> file.mark;
        file.mark += " " + std::to_string(file.bytes);
        file.owner = static_cast<int>(rank);
        const auto known = files_.emplace(name, file);
        of_rank_[rank].insert(name);
        LOCKSTEP_CHECK_CODE(known.first->second.mark == file.mark, ExitCode::snapshot, path,
                            ": nodes have a ", name, " of different content");
      }
    }
  }
  for (const std::string& name : lacking) {
    LOCKSTEP_CHECK_CODE(files_.count(name) > 0, ExitCode::snapshot, path, ": no node has ", name);
  }
}

bool FilesOfNodes::lacks(size_t rank, const std::string& name) const {
  return speaks_[rank] && of_rank_[rank].count(name) == 0;
}

bool FilesOfNodes::is_wanted(const std::string& name) const {
  for (size_t rank = 0; rank < speaks_.size(); ++rank) {
    if (lacks(rank, name)) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> FilesOfNodes::wanted() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) {
    if (name != kManifestName && is_wanted(name)) {
      names.push_back(name);
    }
  }
  if (is_wanted(kManifestName)) {
    names.emplace_back(kManifestName);
  }
  return names;
}

}  // namespace lockstep::snapshot
