#include <lockstep/checkpointing/snapshot/format/cover.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::snapshot {
namespace {

constexpr char kDigits[] = "0123456789";
constexpr char kEnding[] = ".safetensors";

/// A name such as model-00001-of-00003.safetensors: "model-", 1, "-of-00003.safetensors".
struct NumberedName {
  std::string before;
  int64_t number;
  std::string after;
  size_t width;
  int64_t count;
};

std::optional<NumberedName> numbered(const std::string& name) {
  const size_t of = name.rfind("-of-");
  const size_t dash = of == std::string::npos || of == 0 ? of : name.rfind('-', of - 1);
  if (of == std::string::npos || dash == std::string::npos || dash == of) {
    return std::nullopt;
  }
  const std::string number = name.substr(dash + 1, of - dash - 1);
  const std::string count = name.substr(of + 4, name.find('.', of) - of - 4);
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.size() <= 9 && text.find_first_not_of(kDigits) == text.npos;
  };
  if (!is_number(number) || !is_number(count) || name.substr(of + 4) != count + kEnding) {
    return std::nullopt;
  }
  return NumberedName{name.substr(0, dash + 1), std::atoll(number.c_str()), name.substr(of),
                      number.size(), std::atoll(count.c_str())};
}

std::string padded(int64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

int64_t elements_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

/// A part of a divided tensor.
struct Part {
  int64_t begin;
  int64_t elements;
  std::string file;
};

void check_parts(const std::string& where, std::vector<Part> parts, int64_t elements) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::tie(a.begin, a.elements) < std::tie(b.begin, b.elements);
  });
  int64_t next = 0;
  for (const Part& part : parts) {
    if (part.elements > 0 && part.begin < next) {
      reject(where, "element ", part.begin, " is in ", part.file, " and in another slice");
    }
    if (part.begin > next) {
      break;
    }
    next = std::max(next, part.begin + part.elements);
  }
  if (next != elements) {
    reject(where, "the slices leave out element ", next, " of ", elements,
           "; a rank's slices are missing");
  }
}

}  // namespace

std::string missing_of_sets(const std::set<std::string>& names) {
  std::map<std::pair<std::string, std::string>, std::vector<NumberedName>> sets;
  for (const std::string& name : names) {
    if (auto found = numbered(name)) {
      sets[{found->before, found->after}].push_back(std::move(*found));
    }
  }
  for (const auto& [ends, members] : sets) {
    const bool from_zero = std::any_of(members.begin(), members.end(),
                                       [](const NumberedName& name) { return name.number == 0; });
    for (int64_t k = 0; k < members.front().count; ++k) {
      std::string name =
          ends.first + padded(from_zero ? k : k + 1, members.front().width) + ends.second;
      if (names.count(name) == 0) {
        return name;
      }
    }
  }
  return "";
}

void check_cover(const FileRecords& files, const std::string& folder) {
  std::set<std::string> names;
  std::map<std::pair<std::string, std::string>, std::string> whole;  // section, tensor -> file
  std::map<std::pair<std::string, std::string>, std::vector<int64_t>> divided;
  for (const auto& [name, record] : files) {
    names.insert(name);
    if (record.role == FileRole::own) {
      continue;
    }
    for (const auto& [tensor, digest] : record.tensors) {
      const std::pair key(record.section, tensor);
      const auto slice = record.slices.find(tensor);
      const bool is_slice = slice != record.slices.end();
      const auto other = is_slice ? divided.emplace(key, slice->second.sizes).first : divided.end();
      if (is_slice && other->second != slice->second.sizes) {
        reject(folder + "/" + name, "tensor \"", tensor,
               "\" has other sizes than in the slices of another rank");
      }
      if (!is_slice && !whole.emplace(key, name).second) {
        reject(folder + "/" + name, "tensor \"", tensor, "\" of section ", record.section,
               " is in ", whole.at(key), ", too");
      }
    }
  }
  for (const auto& [key, sizes] : divided) {
    if (whole.count(key) > 0) {
      reject(folder + "/" + whole.at(key), "tensor \"", key.second, "\" of section ", key.first,
             " is in the slices of ranks, too");
    }
  }
  if (const std::string missing = missing_of_sets(names); !missing.empty()) {
    reject(folder + "/" + missing,
           "is missing, although another file of its set is part of the snapshot");
  }
}

void check_slices(const FileRecords& files, const SliceElements& elements,
                  const std::string& folder) {
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, std::vector<Part>>> tensors;
  for (const auto& [name, record] : files) {
    for (const auto& [tensor, slice] : record.slices) {
      auto& [whole, parts] = tensors[{record.section, tensor}];
      whole = elements_of(slice.sizes);
      parts.push_back({slice.begin, elements(name, tensor), name});
    }
  }
  for (auto& [key, tensor] : tensors) {
    check_parts(c10::str(folder, " (section ", key.first, ", tensor \"", key.second, "\")"),
                std::move(tensor.second), tensor.first);
  }
}

}  // namespace lockstep::snapshot
