#include "recording.h"

#include "emulated_cuda/cuda_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace lockstep::testing {
namespace {

constexpr size_t kMemory = 16 << 20;
constexpr size_t kBetween = 64;  // bytes that no kernel may touch

std::string hexadecimal(const void* data, size_t bytes) {
  std::string text;
  for (size_t k = 0; k < bytes; ++k) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(data)[k]);
    text += digits;
  }
  return text;
}

}  // namespace

/// Places of kernels are told relative to this symbol.
extern "C" void lockstep_recording_origin() {}

Recording::Recording(const std::string& path)
    : file_(path, std::ios::binary), memory_(kMemory + 256) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  base_ = memory_.data() + (256 - address % 256);
  emulated_cuda::Device& device = emulated_cuda::device();
  device.before = [this](const emulated_cuda::Launch& launch) {
    describe(launch);
    write_memory();
  };
  device.after = [this](const emulated_cuda::Launch&) { write_memory(); };
}

Recording::~Recording() {
  emulated_cuda::device() = {};
}

void Recording::begin(const std::string& name, int64_t elements) {
  name_ = name;
  elements_ = elements;
  arrays_.clear();
  used_ = 0;
}

void* Recording::allocate(int64_t bytes, const char* type) {
  const size_t at = (used_ + kBetween + 15) / 16 * 16;
  used_ = at + static_cast<size_t>(bytes);
  if (used_ + kBetween > kMemory) {
    std::fprintf(stderr, "%s needs more than %zu bytes\n", name_.c_str(), kMemory);
    std::abort();
  }
  arrays_.push_back({at, static_cast<size_t>(bytes), type});
  std::memset(base_ + at, 0xee, static_cast<size_t>(bytes));
  return base_ + at;
}

float* Recording::floats(int64_t size, float low, float high) {
  auto* const values = array<float>(size);
  std::uniform_real_distribution<float> any(low, high);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = any(random_);
  }
  return values;
}

amp::Elements Recording::elements(amp::Element type, int64_t size, float low, float high) {
  if (type == amp::Element::none) {
    return {};
  }
  if (type == amp::Element::fp32) {
    return {floats(size, low, high), type};
  }
  const bool half = type == amp::Element::fp16;
  auto* const values = static_cast<uint16_t*>(allocate(size * 2, half ? "f2" : "bf16"));
  std::uniform_real_distribution<float> any(low, high);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = amp::narrowed_to(any(random_), type);
  }
  return {values, type};
}

void Recording::describe(const emulated_cuda::Launch& launch) {
  std::ostringstream json;
  // A function has no name here: replay.py finds the name from the place in the program.
  json << R"({"case":")" << name_ << R"(","elements":)" << elements_ << R"(,"kernel":)"
       << static_cast<const char*>(launch.kernel) -
              reinterpret_cast<const char*>(&lockstep_recording_origin)
       << R"(,"blocks":[)" << launch.blocks.x << ',' << launch.blocks.y << R"(],"threads":)"
       << launch.threads.x << R"(,"base":)" << reinterpret_cast<uintptr_t>(base_) << R"(,"used":)"
       << used_ << R"(,"arguments":[)";
  const char* separator = "";
  for (const emulated_cuda::Argument& argument : launch.arguments) {
    json << separator << '[' << argument.alignment << ",\""
         << hexadecimal(argument.data, argument.bytes) << "\"]";
    separator = ",";
  }
  json << R"(],"arrays":[)";
  separator = "";
  for (const Array& array : arrays_) {
    json << separator << '[' << array.at << ',' << array.bytes << ",\"" << array.type << "\"]";
    separator = ",";
  }
  json << "]}\n";
  file_ << json.str();
}

void Recording::write_memory() {
  file_.write(reinterpret_cast<const char*>(base_), static_cast<std::streamsize>(used_));
  file_.flush();
}

}  // namespace lockstep::testing
