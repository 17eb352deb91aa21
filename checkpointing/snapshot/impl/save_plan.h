#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>

#include <cstdint>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// A file that this rank will write.
struct PlannedFile {
  std::string name;
  std::string section;
  FileRole role = FileRole::whole;
  NamedTensors tensors;
  std::map<std::string, SliceRecord> slices;
  std::map<std::string, std::string> metadata;  // of the safetensors header
  std::set<std::string> fetched;  // of the tensors those that are copies for this file
};

/// The files that this rank writes. Tensors that all ranks share are divided among ranks: largest
/// first, each to the file with the fewest bytes; every rank computes the same plan.
/// A section of less than `min_shard_bytes` for each rank gets fewer files than there are ranks.
std::vector<PlannedFile> plan_files(const Content& content, int rank, int ranks,
                                    int64_t min_shard_bytes);

/// Fills the tensors of Content::add_later() that these files hold with copies in host memory,
/// page-locked for those of a GPU. All ranks must call it, because the fetch may be collective.
/// Returns why this rank has no memory for them, if so; a rank that fails within a collective fetch
/// leaves the others waiting until their deadline.
std::exception_ptr fetch_values(const Content& content, std::vector<PlannedFile>& files);

/// A line for each property that must be the same on every rank.
std::vector<std::string> shared_lines(const Content& content);

/// For each section with more than one file of whole tensors: name and text of
/// <section>.safetensors.index.json, in which other tools find the tensors.
std::map<std::string, std::string> index_files(const FileRecords& files);

}  // namespace lockstep::snapshot
