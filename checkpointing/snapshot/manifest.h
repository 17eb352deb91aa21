#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::snapshot {

/// What the tensors of a file are.
enum class FileRole {
  whole,   // tensors that all ranks share
  slices,  // one rank's parts of tensors that are spread over ranks
  own,     // tensors of one rank alone
};

struct SliceRecord {
  std::vector<int64_t> sizes;  // of the whole tensor
  int64_t begin = 0;           // first element of the part, in row-major order
};

struct FileRecord {
  std::string section;
  FileRole role = FileRole::whole;
  int rank = 0;  // that wrote the file
  uint64_t bytes = 0;
  std::string header;                          // digest of length and header
  std::map<std::string, std::string> tensors;  // name -> digest of its bytes
  std::map<std::string, SliceRecord> slices;   // for each tensor of a file of slices
};

using FileRecords = std::map<std::string, FileRecord>;

/// What a snapshot is: which files it has, what they must contain, whose it is.
/// docs/snapshot-format.md describes its form on disk.
struct Manifest {
  static constexpr int kSchema = 1;
  static constexpr uint64_t kMaxBytes = 200'000'000;

  std::string run;
  int64_t step = 0;
  int world_size = 0;
  std::optional<double> metric;
  std::map<std::string, std::string> texts;
  /// section -> name -> the name its bytes are stored under
  std::map<std::string, std::map<std::string, std::string>> tied;
  FileRecords files;

  /// The text of manifest.json, sealed with its own digest.
  std::string render() const;
  /// Throws Error (exit code snapshot) with `file` and what is wrong, unless the text is whole,
  /// of a schema this version reads, and consistent in itself.
  static Manifest parse(std::string_view text, const std::string& file);
  /// The same for the part before the seal.
  static Manifest parse_unsealed(std::string_view text, const std::string& file);
};

/// How ranks tell each other what they wrote: the "files" part of a manifest alone.
std::string render_records(const FileRecords& files);
FileRecords parse_records(std::string_view text, const std::string& file);

/// Whether this may be a file of a snapshot: a plain name, of no other folder.
bool is_plain_name(const std::string& name);

}  // namespace lockstep::snapshot
