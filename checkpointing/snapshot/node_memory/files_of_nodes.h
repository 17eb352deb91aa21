#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Which node has which files of a snapshot in memory. The first rank of a node reports for it.
class FilesOfNodes {
 public:
  struct File {
    std::string mark;  // the same on every node that has the file
    size_t bytes = 0;
    int owner = 0;  // the first rank whose node has it
  };

  /// The report of this node: the files that it has of the snapshot at `path`, and those it lacks.
  static std::string of_this_node(const std::string& path);
  /// `texts`: of_this_node() of each first rank; empty for the others. Throws Error if two nodes
  /// have a file of different content, or if no node has a file that the snapshot needs.
  FilesOfNodes(const std::string& path, const std::vector<std::string>& texts);

  /// The files that some node lacks. The manifest is last, since it makes a folder a snapshot.
  std::vector<std::string> wanted() const;
  /// Whether `rank` is the first of a node that lacks this file.
  bool lacks(size_t rank, const std::string& name) const;
  const File& file(const std::string& name) const { return files_.at(name); }

 private:
  bool is_wanted(const std::string& name) const;

  std::map<std::string, File> files_;
  std::vector<std::set<std::string>> of_rank_;
  std::vector<bool> speaks_;
};

}  // namespace lockstep::snapshot
