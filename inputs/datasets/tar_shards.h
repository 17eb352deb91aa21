#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace detail {
class MappedData;
}  // namespace detail

/// One sample of TarShards: the files with one key.
struct TarSample {
  std::string key;                           // "train/0042"
  std::map<std::string, std::string> files;  // by extension: {"jpg", bytes}, {"cls", "7"}

  /// The bytes of one file. Throws Error (exit code data) that names key and extensions if there is
  /// none.
  const std::string& at(const std::string& extension) const;
};

/// A dataset of tar files in the form of WebDataset: files whose names are equal up to the first
/// dot of the last component, one after another, are one sample.
///
///   lockstep::TarShards shards({"train-000.tar", "train-001.tar"});
///   auto train = lockstep::transformed(std::move(shards), [](const lockstep::TarSample& sample) {
///     const at::Tensor image = lockstep::decode_image(sample.at("jpg"), sample.key);
///     return std::make_pair(image, std::stoll(sample.at("cls")));
///   });
///
/// The constructor reads the headers of all files once; after that, samples are read in any order
/// from the mapped file, so a loader shuffles them and resumes exactly. Folders, links and files
/// whose name begins with a dot are ignored. The tar files must not be compressed, and must not
/// change while they are open. Ranks: local. Threads: several threads may call get at the same
/// time. Throws Error (exit code data) that names the file: missing, empty, compressed, no tar
/// file, cut off (also if only the zeros after the last file are missing), several tar files
/// joined, without a sample, a key with two files of one extension, a file without a dot in its
/// name. Throws Error (exit code environment) that names the package to install if lockstep was
/// built without libarchive.
class TarShards {
 public:
  explicit TarShards(const std::vector<std::string>& paths);

  size_t size() const { return samples_.size(); }
  TarSample get(size_t index) const;

 private:
  struct File {
    std::string extension;
    std::string_view bytes;  // in the mapped file
  };
  struct Sample {
    std::string key;
    std::vector<File> files;
  };
  void add(const detail::MappedData& shard);

  std::vector<std::shared_ptr<const detail::MappedData>> shards_;
  std::vector<Sample> samples_;
};

}  // namespace lockstep
