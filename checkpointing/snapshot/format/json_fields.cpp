#include <lockstep/checkpointing/snapshot/format/json_fields.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>

#include <nlohmann/json.hpp>

#include <utility>

namespace lockstep::snapshot {

using nlohmann::json;

JsonFields::JsonFields(const json& value, const std::string& file, std::string place)
    : value_(value), file_(file), place_(std::move(place)) {
  if (!value_.is_object()) {
    reject(file_, place_.empty() ? "the document" : place_, " must be an object");
  }
}

void JsonFields::wrong(const std::string& key, const std::string& complaint) const {
  reject(file_, "field ", place_, key, " ", complaint);
}

const json& JsonFields::field(const std::string& key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) {
    wrong(key, "is missing");
  }
  return *found;
}

size_t JsonFields::size() const {
  return value_.size();
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_.items()) {
    keys.push_back(key);
  }
  return keys;
}

std::string JsonFields::text(const std::string& key) const {
  const json& value = field(key);
  if (!value.is_string()) {
    wrong(key, "must be a text");
  }
  return value.get<std::string>();
}

int64_t JsonFields::checked_integer(const std::string& key, const json& value, int64_t least,
                                    int64_t most) const {
  if (!value.is_number_unsigned() || value.get<uint64_t>() < static_cast<uint64_t>(least) ||
      value.get<uint64_t>() > static_cast<uint64_t>(most)) {
    wrong(key, c10::str("must be an integer from ", least, " to ", most));
  }
  return value.get<int64_t>();
}

int64_t JsonFields::integer(const std::string& key, int64_t least, int64_t most) const {
  return checked_integer(key, field(key), least, most);
}

std::vector<int64_t> JsonFields::integers(const std::string& key) const {
  const json& value = field(key);
  if (!value.is_array()) {
    wrong(key, "must be a list of integers");
  }
  std::vector<int64_t> integers;
  for (const json& element : value) {
    integers.push_back(checked_integer(key, element, 0, std::numeric_limits<int64_t>::max()));
  }
  return integers;
}

std::optional<double> JsonFields::optional_number(const std::string& key) const {
  const json& value = field(key);
  if (value.is_null()) {
    return std::nullopt;
  }
  if (!value.is_number()) {
    wrong(key, "must be a number or null");
  }
  return value.get<double>();
}

bool JsonFields::boolean(const std::string& key, bool otherwise) const {
  if (!value_.contains(key)) {
    return otherwise;
  }
  const json& value = field(key);
  if (!value.is_boolean()) {
    wrong(key, "must be true or false");
  }
  return value.get<bool>();
}

JsonFields JsonFields::object(const std::string& key) const {
  const json& value = field(key);
  if (!value.is_object()) {
    wrong(key, "must be an object");
  }
  return {value, file_, place_ + key + "."};
}

std::map<std::string, std::string> JsonFields::all_texts() const {
  std::map<std::string, std::string> texts;
  for (const std::string& key : keys()) {
    texts[key] = text(key);
  }
  return texts;
}

}  // namespace lockstep::snapshot
