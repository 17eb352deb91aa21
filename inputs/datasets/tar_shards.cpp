#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/datasets/archive/tar_entries.h>
#include <lockstep/inputs/tar_shards.h>

#include <algorithm>
#include <cctype>
#include <unordered_set>
#include <vector>

namespace lockstep {
namespace {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

}  // namespace

const std::string& TarSample::at(const std::string& extension) const {
  const auto found = files.find(extension);
  if (found == files.end()) {
    std::string there;
    for (const auto& file : files) {
      there += (there.empty() ? "" : ", ") + file.first;
    }
    throw Error(c10::str("sample ", key, ": has no file .", extension, ", it has ", there),
                ExitCode::data);
  }
  return found->second;
}

TarShards::TarShards(const std::vector<std::string>& paths) {
  LOCKSTEP_CHECK_CODE(!paths.empty(), ExitCode::data, "TarShards: no file was given");
  for (const std::string& path : paths) {
    shards_.push_back(std::make_shared<const detail::MappedData>(path));
    add(*shards_.back());
  }
}

void TarShards::add(const detail::MappedData& shard) {
  const size_t before = samples_.size();
  std::unordered_set<std::string> extensions;  // of the last sample
  for (const detail::TarEntry& entry : detail::tar_entries(shard)) {
    const size_t slash = entry.name.find_last_of('/');
    const size_t name = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = entry.name.find('.', name);
    if (dot == name) {
      continue;  // hidden files, such as those of macOS
    }
    shard.check(dot != std::string::npos, entry.begin, "the file ", entry.name,
                " has no dot in its name, expected KEY.EXTENSION");
    const std::string key = entry.name.substr(0, dot);
    const std::string extension = lower_case(entry.name.substr(dot + 1));
    if (samples_.size() == before || samples_.back().key != key) {
      samples_.push_back({key, {}});
      extensions.clear();
    }
    shard.check(extensions.insert(extension).second, entry.begin, "the file ", entry.name,
                " is there twice");
    samples_.back().files.push_back({extension, shard.text().substr(entry.begin, entry.size)});
  }
  LOCKSTEP_CHECK_CODE(samples_.size() > before, ExitCode::data, shard.path(),
                      ": has no file, expected samples");
}

TarSample TarShards::get(size_t index) const {
  const Sample& sample = samples_.at(index);
  TarSample result = {sample.key, {}};
  for (const File& file : sample.files) {
    result.files.emplace(file.extension, std::string(file.bytes));
  }
  return result;
}

}  // namespace lockstep
