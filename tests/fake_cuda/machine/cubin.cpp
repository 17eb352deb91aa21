#include "cubin.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace fake_cuda {
namespace {

constexpr uint32_t kNoBits = 8;  // a section without content
constexpr int kObject = 1;       // a symbol of a variable
constexpr int kSectionSymbol = 3;

// Relocations: an address of 64 bits, of its own space or generic. They are the same here.
constexpr uint32_t kAbsolute64 = 2;
constexpr uint32_t kGeneric64 = 4;

// Entries of .nv.info: a byte for the format, one for the attribute, then the payload.
constexpr uint8_t kSized = 4;
constexpr uint8_t kMaxThreads = 0x05;
constexpr uint8_t kParameterBank = 0x0a;
constexpr uint8_t kFrameSize = 0x11;
constexpr uint8_t kMinStackSize = 0x12;
constexpr uint8_t kParameterInfo = 0x17;

/// Calls visit(attribute, payload) for each entry that has a size.
template <typename Visit>
void visit_attributes(std::string_view entries, Visit visit) {
  for (size_t at = 0; at + 4 <= entries.size();) {
    const uint8_t format = entries[at], attribute = entries[at + 1];
    uint16_t bytes = 0;
    if (format == kSized) {
      memcpy(&bytes, entries.data() + at + 2, sizeof bytes);
      if (at + 4 + bytes > entries.size()) {
        return;
      }
      visit(attribute, entries.substr(at + 4, bytes));
    }
    at += 4 + bytes;
  }
}

template <typename T>
T value_in(std::string_view bytes, size_t offset) {
  T value = 0;
  if (offset + sizeof value <= bytes.size()) {
    memcpy(&value, bytes.data() + offset, sizeof value);
  }
  return value;
}

}  // namespace

template <typename T>
T Cubin::at(uint64_t offset) const {
  if (offset + sizeof(T) > file_.size()) {
    throw DeviceFault(cudaErrorInvalidKernelImage, path_ + " is cut off");
  }
  T value;
  memcpy(&value, file_.data() + offset, sizeof value);
  return value;
}

Cubin::Cubin(const std::string& path) : path_(path) {
  std::ifstream in(path, std::ios::binary);
  file_.assign(std::istreambuf_iterator<char>(in), {});
  if (file_.compare(0, 4,
                    "\x7f"
                    "ELF") != 0) {
    throw DeviceFault(cudaErrorInvalidKernelImage, path + " is no ELF file");
  }
  const auto table = at<uint64_t>(40);
  const int entry_bytes = at<uint16_t>(58), count = at<uint16_t>(60), names = at<uint16_t>(62);
  const auto names_offset = at<uint64_t>(table + names * entry_bytes + 24);
  for (int n = 0; n < count; ++n) {
    const uint64_t entry = table + n * entry_bytes;
    Section section;
    section.name = file_.data() + names_offset + at<uint32_t>(entry);
    section.type = at<uint32_t>(entry + 4);
    section.offset = at<uint64_t>(entry + 24);
    section.bytes = at<uint64_t>(entry + 32);
    section.info = at<uint32_t>(entry + 44);
    if (section.type != kNoBits && section.offset + section.bytes > file_.size()) {
      throw DeviceFault(cudaErrorInvalidKernelImage, path + " is cut off");
    }
    by_name_[section.name] = n;
    sections_.push_back(section);
  }
  read_symbols();
}

std::string_view Cubin::content(const Section& section) const {
  return section.type == kNoBits ? std::string_view()
                                 : std::string_view(file_).substr(section.offset, section.bytes);
}

const Cubin::Section* Cubin::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &sections_[found->second];
}

void Cubin::read_symbols() {
  const Section *table = find(".symtab"), *names = find(".strtab");
  if (table == nullptr || names == nullptr) {
    return;
  }
  for (uint64_t entry = table->offset; entry + 24 <= table->offset + table->bytes; entry += 24) {
    Symbol symbol;
    symbol.name = file_.data() + names->offset + at<uint32_t>(entry);
    symbol.type = at<uint8_t>(entry + 4) & 15;
    symbol.section = at<uint16_t>(entry + 6);
    symbol.value = at<uint64_t>(entry + 8);
    symbol.bytes = at<uint64_t>(entry + 16);
    symbols_.push_back(symbol);
  }
}

Cubin::KernelInfo Cubin::kernel(const std::string& name) const {
  const Section *code = find(".text." + name), *attributes = find(".nv.info." + name);
  if (code == nullptr || attributes == nullptr) {
    throw DeviceFault(cudaErrorNoKernelImageForDevice, path_ + " has no kernel " + name);
  }
  if (find(".rel.text." + name) != nullptr || find(".rela.text." + name) != nullptr) {
    throw DeviceFault(cudaErrorNotSupported, "the code of " + name + " holds addresses");
  }
  KernelInfo info;
  info.code = content(*code);
  info.attributes.registers = int(code->info >> 24);
  if (const Section* shared = find(".nv.shared." + name)) {
    info.attributes.shared_bytes = shared->bytes;
  }
  if (const Section* constants = find(".nv.constant2." + name)) {
    const std::string_view bytes = content(*constants);
    info.bank2.assign(bytes.begin(), bytes.end());
    info.attributes.constant_bytes = bytes.size();
  }
  info.attributes.local_bytes = stack_of(name);
  read_attributes(*attributes, info);
  return info;
}

void Cubin::read_attributes(const Section& section, KernelInfo& info) const {
  visit_attributes(content(section), [&](uint8_t attribute, std::string_view payload) {
    if (attribute == kParameterInfo) {
      const size_t ordinal = value_in<uint16_t>(payload, 4);
      info.parameters.resize(std::max(info.parameters.size(), ordinal + 1));
      info.parameters[ordinal].offset = value_in<uint16_t>(payload, 6);
      info.parameters[ordinal].bytes = int(value_in<uint32_t>(payload, 8) >> 18);
    } else if (attribute == kParameterBank) {
      info.parameter_base = value_in<uint16_t>(payload, 4);
      info.parameter_bytes = value_in<uint16_t>(payload, 6);
    } else if (attribute == kMaxThreads) {
      info.attributes.max_threads =
          int(value_in<uint32_t>(payload, 0) * value_in<uint32_t>(payload, 4) *
              value_in<uint32_t>(payload, 8));
    }
  });
}

size_t Cubin::stack_of(const std::string& kernel) const {
  const Section* all = find(".nv.info");
  if (all == nullptr) {
    return 0;
  }
  size_t most = 0;
  visit_attributes(content(*all), [&](uint8_t attribute, std::string_view payload) {
    if (attribute == kMinStackSize || attribute == kFrameSize) {
      const uint32_t symbol = value_in<uint32_t>(payload, 0);
      if (symbol < symbols_.size() && symbols_[symbol].name == kernel) {
        most = std::max<size_t>(most, value_in<uint32_t>(payload, 4));
      }
    }
  });
  return most;
}

std::vector<Cubin::Variable> Cubin::variables() const {
  std::vector<Variable> found;
  for (const Symbol& symbol : symbols_) {
    if (symbol.type != kObject || symbol.section == 0 || symbol.section >= int(sections_.size())) {
      continue;
    }
    const Section& section = sections_[symbol.section];
    const bool is_constant = section.name == ".nv.constant3";
    if (!is_constant && section.name != ".nv.global" && section.name != ".nv.global.init") {
      continue;
    }
    Variable variable{symbol.name, symbol.section, symbol.value, symbol.bytes, is_constant, {}};
    if (section.type != kNoBits) {
      variable.content = content(section).substr(symbol.value, symbol.bytes);
    }
    found.push_back(variable);
  }
  return found;
}

std::vector<char> Cubin::bank3() const {
  const Section* section = find(".nv.constant3");
  if (section == nullptr) {
    return {};
  }
  std::vector<char> bytes(section->bytes);
  const std::string_view from = content(*section);
  std::copy(from.begin(), from.end(), bytes.begin());
  return bytes;
}

uint64_t Cubin::address_of(const Symbol& symbol, uint64_t addend, const Places& places) const {
  if (symbol.section == 0) {
    const std::vector<std::string> functions = driver_functions();
    const auto function = std::find(functions.begin(), functions.end(), symbol.name);
    return kDriverFunctions + uint64_t(function - functions.begin());
  }
  const uint64_t offset = symbol.value + addend;
  const std::vector<Variable> known = variables();
  for (size_t n = 0; n < known.size() && n < places.size(); ++n) {
    const Variable& variable = known[n];
    const bool is_inside = symbol.type == kSectionSymbol ? offset - variable.offset < variable.bytes
                                                         : symbol.value == variable.offset;
    if (is_inside && variable.section == symbol.section) {
      return reinterpret_cast<uint64_t>(places[n]) + (offset - variable.offset);
    }
  }
  throw DeviceFault(cudaErrorInvalidKernelImage,
                    path_ + " takes the address of " + symbol.name + ", which is no variable");
}

template <typename Visit>
void Cubin::visit_addresses(const std::string& section, const Places& places, Visit visit) const {
  const Section *relocations = find(".rel" + section), *holder = find(section);
  if (find(".rela" + section) != nullptr) {
    throw DeviceFault(cudaErrorInvalidKernelImage, path_ + ": relocations of another kind");
  }
  if (relocations == nullptr || holder == nullptr) {
    return;
  }
  const std::string_view bytes = content(*holder);
  for (uint64_t entry = relocations->offset; entry + 16 <= relocations->offset + relocations->bytes;
       entry += 16) {
    const auto where = at<uint64_t>(entry);
    const auto type = at<uint32_t>(entry + 8);
    const auto number = at<uint32_t>(entry + 12);
    if ((type != kAbsolute64 && type != kGeneric64) || where + 8 > bytes.size() ||
        number >= symbols_.size()) {
      throw DeviceFault(cudaErrorInvalidKernelImage,
                        path_ + ": a relocation of type " + std::to_string(type));
    }
    visit(where, address_of(symbols_[number], value_in<uint64_t>(bytes, where), places));
  }
}

std::vector<char> Cubin::bank4(const Places& places) const {
  const Section* section = find(".nv.constant4");
  if (section == nullptr) {
    return {};
  }
  const std::string_view from = content(*section);
  std::vector<char> bytes(from.begin(), from.end());
  visit_addresses(section->name, places, [&](uint64_t where, uint64_t address) {
    memcpy(bytes.data() + where, &address, sizeof address);
  });
  return bytes;
}

void Cubin::write_addresses(const Places& places) const {
  const std::vector<Variable> known = variables();
  for (const std::string section : {".nv.global.init", ".nv.constant3"}) {
    visit_addresses(section, places, [&](uint64_t where, uint64_t address) {
      for (size_t n = 0; n < known.size() && n < places.size(); ++n) {
        const Variable& variable = known[n];
        if (sections_[size_t(variable.section)].name == section &&
            where - variable.offset + sizeof address <= variable.bytes) {
          memcpy(static_cast<char*>(places[n]) + (where - variable.offset), &address,
                 sizeof address);
        }
      }
    });
  }
}

std::vector<std::string> Cubin::driver_functions() const {
  std::vector<std::string> names;
  for (const Symbol& symbol : symbols_) {
    if (symbol.section == 0 && !symbol.name.empty()) {
      names.push_back(symbol.name);
    }
  }
  return names;
}

}  // namespace fake_cuda
