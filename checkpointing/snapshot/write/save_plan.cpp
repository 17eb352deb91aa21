#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/json_document.h>
#include <lockstep/checkpointing/snapshot/impl/save_plan.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/device_watch.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace lockstep::snapshot {
namespace {

using Item = std::pair<std::string, at::Tensor>;

std::string numbered(const std::string& section, const char* form, int number, int count) {
  char text[64];
  std::snprintf(text, sizeof text, form, number, count);
  return section + text + ".safetensors";
}

std::string whole_name(const std::string& section, size_t shard, size_t shards) {
  return shards == 1 ? section + ".safetensors"
                     : numbered(section, "-%05d-of-%05d", static_cast<int>(shard) + 1,
                                static_cast<int>(shards));
}

struct Shard {
  int64_t bytes = 0;
  NamedTensors tensors;
};

std::vector<Shard> spread(NamedTensors tensors, int ranks, int64_t min_shard_bytes) {
  int64_t total = 0;
  for (const Item& item : tensors) {
    total += static_cast<int64_t>(item.second.nbytes());
  }
  const int64_t wanted = (total + min_shard_bytes - 1) / min_shard_bytes;
  const int64_t most = std::min<int64_t>(ranks, static_cast<int64_t>(tensors.size()));
  std::vector<Shard> shards(static_cast<size_t>(std::clamp<int64_t>(wanted, 1, most)));
  std::sort(tensors.begin(), tensors.end(), [](const Item& a, const Item& b) {
    return std::make_pair(b.second.nbytes(), a.first) < std::make_pair(a.second.nbytes(), b.first);
  });
  for (Item& item : tensors) {
    const auto least =
        std::min_element(shards.begin(), shards.end(),
                         [](const Shard& a, const Shard& b) { return a.bytes < b.bytes; });
    least->bytes += static_cast<int64_t>(item.second.nbytes());
    least->tensors.push_back(std::move(item));
  }
  return shards;
}

/// Tied names are metadata of the file with the tensor, in the form that load_model of
/// safetensors.torch reads.
std::map<std::string, std::string> metadata_of(const Shard& shard,
                                               const std::map<std::string, std::string>& tied) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  for (const auto& [name, stored] : tied) {
    for (const Item& item : shard.tensors) {
      if (item.first == stored) {
        metadata[name] = stored;
      }
    }
  }
  return metadata;
}

PlannedFile slices_file(const std::string& section, const Content::Section& content, int rank) {
  PlannedFile file;
  file.name = numbered(section, ".slice-%05d", rank, 0);
  file.section = section;
  file.role = FileRole::slices;
  file.metadata = {{"format", "pt"}};
  for (const auto& [name, slice] : content.slices) {
    file.tensors.emplace_back(name, slice.elements);
    file.slices[name] = {slice.sizes, slice.begin, slice.elements.numel()};
  }
  return file;
}

}  // namespace

std::vector<PlannedFile> plan_files(const Content& content, int rank, int ranks,
                                    int64_t min_shard_bytes) {
  std::vector<PlannedFile> mine;
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  for (const auto& [section, tensors] : content.sections()) {
    if (!tensors.whole.empty()) {
      const std::vector<Shard> shards = spread(tensors.whole, ranks, min_shard_bytes);
      for (size_t shard = 0; shard < shards.size(); ++shard) {
        const auto writer = std::min_element(load.begin(), load.end());
        *writer += shards[shard].bytes;
        if (writer - load.begin() == rank) {
          mine.push_back({whole_name(section, shard, shards.size()),
                          section,
                          FileRole::whole,
                          shards[shard].tensors,
                          {},
                          metadata_of(shards[shard], tensors.tied),
                          {}});
        }
      }
    }
    if (!tensors.slices.empty()) {
      mine.push_back(slices_file(section, tensors, rank));
    }
    if (!tensors.own.empty()) {
      mine.push_back({numbered(section, ".rank-%05d", rank, 0),
                      section,
                      FileRole::own,
                      tensors.own,
                      {},
                      {{"format", "pt"}},
                      {}});
    }
  }
  return mine;
}

std::exception_ptr fetch_values(const Content& content, std::vector<PlannedFile>& files) {
  std::exception_ptr problem;
  for (const auto& [section, tensors] : content.sections()) {
    if (!tensors.fetch) {
      continue;
    }
    std::map<std::string, std::pair<PlannedFile*, at::Tensor*>> wanted;
    for (PlannedFile& file : files) {
      for (auto& [name, tensor] : file.tensors) {
        if (file.section == section && tensor.is_meta()) {
          wanted[name] = {&file, &tensor};
        }
      }
    }
    const auto take = [&](const std::string& name, const at::Tensor& values) {
      const auto found = wanted.find(name);
      if (found == wanted.end() || problem) {
        return;
      }
      try {
        auto& [file, tensor] = found->second;
        *tensor = lockstep::detail::host_memory_for(values.device(), values.sizes(),
                                                    values.scalar_type());
        tensor->copy_(values);
        file->fetched.insert(name);
      } catch (...) {
        problem = std::current_exception();
      }
    };
    try {
      tensors.fetch(take);
    } catch (const CommunicationError&) {
      throw;
    } catch (...) {
      problem = std::current_exception();
    }
  }
  return problem;
}

std::vector<std::string> shared_lines(const Content& content) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : content.texts()) {
    lines.push_back(c10::str("text \"", name, "\" with the digest ", digest_of(value)));
  }
  for (const auto& [section, tensors] : content.sections()) {
    for (const auto& [name, tensor] : tensors.whole) {
      lines.push_back(c10::str("tensor \"", name, "\" of section ", section, ": ",
                               tensor.scalar_type(), " ", tensor.sizes()));
    }
    for (const auto& [name, stored] : tensors.tied) {
      lines.push_back(
          c10::str("tensor \"", name, "\" of section ", section, " is \"", stored, "\""));
    }
  }
  return lines;
}

std::map<std::string, std::string> index_files(const FileRecords& files) {
  struct Index {
    std::map<std::string, std::string> weight_map;
    uint64_t total_size = 0;
  };
  std::map<std::string, Index> indexes;
  for (const auto& [name, file] : files) {
    if (file.role != FileRole::whole || name == file.section + ".safetensors") {
      continue;
    }
    Index& index = indexes[file.section];
    index.total_size += file.bytes;
    for (const auto& [tensor, digest] : file.tensors) {
      index.weight_map[tensor] = name;
    }
  }
  std::map<std::string, std::string> texts;
  for (const auto& [section, index] : indexes) {
    const nlohmann::json document = {{"metadata", {{"total_size", index.total_size}}},
                                     {"weight_map", index.weight_map}};
    texts[section + ".safetensors.index.json"] = render_json(document, "an index");
  }
  return texts;
}

}  // namespace lockstep::snapshot
