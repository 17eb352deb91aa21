#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::snapshot {

/// Which kind of tensors a file holds.
enum class FileRole {
  whole,   // tensors that all ranks share
  slices,  // one rank's parts of tensors that are divided among ranks
  own,     // tensors of one rank alone
};

/// Which part of a divided tensor a file holds.
struct SliceRecord {
  std::vector<int64_t> sizes;  // of the whole tensor
  int64_t begin = 0;           // index of the first element of the part, in row-major order
  int64_t elements = 0;        // of the part; not in the manifest: the file's header has it
};

/// What the manifest says about one file.
struct FileRecord {
  std::string section;
  FileRole role = FileRole::whole;
  int rank = 0;  // the rank that wrote the file
  uint64_t bytes = 0;
  std::string header;                          // digest of the length field and the header
  std::map<std::string, std::string> tensors;  // name -> digest of the bytes
  std::map<std::string, SliceRecord> slices;   // for each tensor if role is slices
};

using FileRecords = std::map<std::string, FileRecord>;

/// Describes a snapshot: its files, their expected contents, and the run that it belongs to.
/// docs/snapshot-format.md describes the form on disk.
struct Manifest {
  static constexpr int kSchema = 1;
  static constexpr uint64_t kMaxBytes = 200'000'000;

  std::string run;
  int64_t step = 0;
  int world_size = 0;
  std::optional<double> metric;
  bool lower_is_better = true;  // how metrics of the run are compared
  std::map<std::string, std::string> texts;
  /// section -> name -> the name under which the bytes are stored
  std::map<std::string, std::map<std::string, std::string>> tied;
  FileRecords files;

  /// The text of manifest.json. It ends with the digest of everything before (the seal).
  std::string render() const;
  /// Throws Error (exit code snapshot) with `file` and the reason if the text is truncated or
  /// damaged, has a schema that this version cannot read, or contradicts itself.
  static Manifest parse(std::string_view text, const std::string& file);
  /// Parses the part before the seal.
  static Manifest parse_unsealed(std::string_view text, const std::string& file);
};

/// The "files" part of a manifest with the elements of slices: the report of a rank about its
/// files.
std::string render_records(const FileRecords& files);
FileRecords parse_records(std::string_view text, const std::string& file);

/// Whether a file in a snapshot may have this name: a plain name without a path.
bool is_plain_name(const std::string& name);

}  // namespace lockstep::snapshot
