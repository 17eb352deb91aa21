#pragma once

#include <lockstep/checkpointing/snapshot/format/json_document.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Typed access to an object of a document. Throws Error (exit code snapshot) with file and place
/// if a field is missing or of another type. Holds references to the document and the file name.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& value, const std::string& file, std::string place);

  size_t size() const;
  std::vector<std::string> keys() const;
  std::string text(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t least = 0,
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<int64_t> integers(const std::string& key) const;
  /// Empty if the field is null.
  std::optional<double> optional_number(const std::string& key) const;
  /// `otherwise` if there is no such field.
  bool boolean(const std::string& key, bool otherwise) const;
  JsonFields object(const std::string& key) const;
  /// All fields; each must be a text.
  std::map<std::string, std::string> all_texts() const;

  [[noreturn]] void wrong(const std::string& key, const std::string& complaint) const;

 private:
  const nlohmann::json& field(const std::string& key) const;
  int64_t checked_integer(const std::string& key, const nlohmann::json& value, int64_t least,
                          int64_t most) const;

  const nlohmann::json& value_;
  const std::string& file_;
  std::string place_;  // "files.model.safetensors.", or empty at the top
};

}  // namespace lockstep::snapshot
