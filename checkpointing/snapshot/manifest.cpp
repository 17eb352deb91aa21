#include <lockstep/checkpointing/snapshot/format/digest.h>
#include <lockstep/checkpointing/snapshot/format/json_fields.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>

#include <nlohmann/json.hpp>

#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep::snapshot {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "lockstep snapshot";
constexpr std::array<std::pair<FileRole, const char*>, 3> kRoles = {
    {{FileRole::whole, "whole"}, {FileRole::slices, "slices"}, {FileRole::own, "own"}}};

// The last bytes of a manifest (the seal): a comma in place of the closing brace, then the digest
// of all bytes before.
constexpr std::string_view kSealStart = ",\n\"xxh3\":\"";
constexpr std::string_view kSealEnd = "\"}\n";
constexpr size_t kSealBytes = kSealStart.size() + 16 + kSealEnd.size();

json to_json(const FileRecord& file) {
  json value = {{"section", file.section},
                {"rank", file.rank},
                {"bytes", file.bytes},
                {"header", file.header},
                {"tensors", file.tensors}};
  for (const auto& [role, name] : kRoles) {
    if (role == file.role) {
      value["role"] = name;
    }
  }
  for (const auto& [name, slice] : file.slices) {
    value["slices"][name] = {{"sizes", slice.sizes}, {"begin", slice.begin}};
  }
  return value;
}

json to_json(const FileRecords& files) {
  json value = json::object();
  for (const auto& [name, file] : files) {
    value[name] = to_json(file);
  }
  return value;
}

FileRole read_role(const JsonFields& fields) {
  const std::string text = fields.text("role");
  for (const auto& [role, name] : kRoles) {
    if (text == name) {
      return role;
    }
  }
  fields.wrong("role", "must be whole, slices or own");
}

std::string read_digest(const JsonFields& fields, const std::string& key) {
  std::string digest = fields.text(key);
  if (!is_digest(digest)) {
    fields.wrong(key, "must be 16 hexadecimal digits");
  }
  return digest;
}

void read_slices(const JsonFields& fields, FileRecord& record) {
  const JsonFields slices = fields.object("slices");
  for (const auto& [name, digest] : record.tensors) {
    const JsonFields slice = slices.object(name);
    record.slices[name] = {slice.integers("sizes"), slice.integer("begin"), 0};
    int64_t elements = 1;
    for (const int64_t size : record.slices[name].sizes) {
      if (__builtin_mul_overflow(elements, size, &elements)) {
        slice.wrong("sizes", "make more than 2^63 elements");
      }
    }
  }
  if (slices.size() != record.tensors.size()) {
    fields.wrong("slices", "must describe each tensor of the file and no other");
  }
}

FileRecord read_record(const JsonFields& fields) {
  FileRecord record;
  record.section = fields.text("section");
  record.role = read_role(fields);
  record.rank = static_cast<int>(fields.integer("rank", 0, 1 << 30));
  record.bytes = static_cast<uint64_t>(fields.integer("bytes"));
  record.header = read_digest(fields, "header");
  const JsonFields tensors = fields.object("tensors");
  for (const std::string& name : tensors.keys()) {
    record.tensors[name] = read_digest(tensors, name);
  }
  if (record.role == FileRole::slices) {
    read_slices(fields, record);
  }
  return record;
}

FileRecords read_records(const JsonFields& fields) {
  FileRecords records;
  for (const std::string& name : fields.keys()) {
    if (!is_plain_name(name)) {
      fields.wrong(name, "is no plain file name: a snapshot has its files in its own folder only");
    }
    records[name] = read_record(fields.object(name));
  }
  return records;
}

/// Checks that every tied name leads to a stored tensor of the same section.
void check_tied(const Manifest& manifest, const std::string& file) {
  std::map<std::string_view, std::set<std::string_view>> whole;  // section -> tensors
  for (const auto& [file_name, record] : manifest.files) {
    for (const auto& [name, digest] : record.tensors) {
      if (record.role == FileRole::whole) {
        whole[record.section].insert(name);
      }
    }
  }
  for (const auto& [section, names] : manifest.tied) {
    for (const auto& [name, stored] : names) {
      if (whole[section].count(stored) == 0) {
        reject(file, "\"", name, "\" of section ", section, " is tied to \"", stored,
               "\", which is not stored");
      }
    }
  }
}

JsonLimits manifest_limits() {
  JsonLimits limits;
  limits.values = 20'000'000;
  return limits;
}

}  // namespace

std::string Manifest::render() const {
  json value = {{"format", kFormat},        {"schema", kSchema}, {"run", run},  {"step", step},
                {"world_size", world_size}, {"texts", texts},    {"tied", tied}};
  value["metric"] = metric ? json(*metric) : json(nullptr);
  value["lower_is_better"] = lower_is_better;
  value["files"] = to_json(files);
  std::string text = render_json(value, "the manifest");
  text.pop_back();  // the closing brace comes after the seal
  return text + std::string(kSealStart) + digest_of(text) + std::string(kSealEnd);
}

Manifest Manifest::parse(std::string_view text, const std::string& file) {
  if (text.size() > kMaxBytes) {
    reject(file, "has ", text.size(), " bytes; a manifest has at most ", kMaxBytes);
  }
  if (text.size() < kSealBytes ||
      text.substr(text.size() - kSealBytes, kSealStart.size()) != kSealStart ||
      text.substr(text.size() - kSealEnd.size()) != kSealEnd) {
    reject(file, "does not end with its digest; it is truncated or no manifest");
  }
  const std::string_view body = text.substr(0, text.size() - kSealBytes);
  const std::string_view sealed = text.substr(body.size() + kSealStart.size(), 16);
  const std::string found = digest_of(body.data(), body.size());
  if (sealed != found) {
    reject(file, "is damaged: its digest is ", found, ", but it was sealed with ", sealed);
  }
  return parse_unsealed(body, file);
}

Manifest Manifest::parse_unsealed(std::string_view text, const std::string& file) {
  const json document = parse_json(std::string(text) + "}", file, 0, manifest_limits());
  const JsonFields fields(document, file, "");
  if (fields.text("format") != kFormat) {
    fields.wrong("format", std::string("must be ") + kFormat);
  }
  if (const int64_t schema = fields.integer("schema"); schema != kSchema) {
    fields.wrong("schema", c10::str("is ", schema, ", but this version reads ", kSchema,
                                    "; use the version of lockstep that wrote the snapshot"));
  }
  Manifest manifest;
  manifest.run = fields.text("run");
  manifest.step = fields.integer("step");
  manifest.world_size = static_cast<int>(fields.integer("world_size", 1, 1 << 30));
  manifest.metric = fields.optional_number("metric");
  manifest.lower_is_better = fields.boolean("lower_is_better", /*otherwise=*/true);
  manifest.texts = fields.object("texts").all_texts();
  const JsonFields tied = fields.object("tied");
  for (const std::string& section : tied.keys()) {
    manifest.tied[section] = tied.object(section).all_texts();
  }
  manifest.files = read_records(fields.object("files"));
  for (const auto& [name, record] : manifest.files) {
    if (record.rank >= manifest.world_size) {
      reject(file, "was written by ", manifest.world_size, " ranks, but has the file ", name,
             " of rank ", record.rank);
    }
  }
  check_tied(manifest, file);
  return manifest;
}

std::string render_records(const FileRecords& files) {
  json value = to_json(files);
  for (const auto& [name, file] : files) {
    for (const auto& [tensor, slice] : file.slices) {
      value[name]["slices"][tensor]["elements"] = slice.elements;
    }
  }
  return render_json(value, "the records of files");
}

FileRecords parse_records(std::string_view text, const std::string& file) {
  const json document = parse_json(text, file, 0, manifest_limits());
  const JsonFields fields(document, file, "");
  FileRecords records = read_records(fields);
  for (auto& [name, record] : records) {
    for (auto& [tensor, slice] : record.slices) {
      slice.elements = fields.object(name).object("slices").object(tensor).integer("elements");
    }
  }
  return records;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

}  // namespace lockstep::snapshot
