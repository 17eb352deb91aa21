#pragma once

#include <cstdint>
#include <string>

#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// A file of this rank in a folder for snapshots, made to measure the folder. It has a name that
/// nobody can foresee, and no link leads to it: others may write to the folder, too. The destructor
/// removes it.
class FolderProbe {
 public:
  /// Makes the folder if it is missing. Where it cannot write, facts() say why.
  FolderProbe(const std::string& folder, int64_t bytes);
  ~FolderProbe();
  FolderProbe(const FolderProbe&) = delete;
  FolderProbe& operator=(const FolderProbe&) = delete;

  const FolderFacts& facts() const { return facts_; }
  /// The path of the file; empty: none could be made.
  const std::string& path() const { return path_; }

 private:
  FolderFacts facts_;
  std::string path_;
};

}  // namespace lockstep::doctor
