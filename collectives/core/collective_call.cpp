#include <lockstep/collectives/impl/collective_call.h>

#include <c10/util/StringUtil.h>

#include <cstring>

namespace lockstep::detail {
namespace {

const char* op_name(ReduceOp::Kind op) {
  switch (op) {
    case ReduceOp::Kind::sum:
      return "sum";
    case ReduceOp::Kind::max:
      return "max";
    case ReduceOp::Kind::avg:
      return "avg";
    case ReduceOp::Kind::min:
      return "min";
  }
  return "unknown operation";
}

bool reduces(Verb verb) {
  return verb == Verb::all_reduce || verb == Verb::reduce_scatter;
}

}  // namespace

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::all_reduce:
      return "all_reduce";
    case Verb::reduce_scatter:
      return "reduce_scatter";
    case Verb::all_gather:
      return "all_gather";
    case Verb::broadcast:
      return "broadcast";
    case Verb::barrier:
      return "barrier";
    case Verb::split:
      return "split";
    case Verb::allocate:
      return "allocate";
    case Verb::graph_launch:
      return "graph_launch";
    case Verb::abandoned:
      return "abandoned";
  }
  return "unknown verb";
}

bool CollectiveCall::operator==(const CollectiveCall& other) const {
  return verb == other.verb && dtype == other.dtype && op == other.op && root == other.root &&
         numel == other.numel && predivide == other.predivide && buffer == other.buffer &&
         buffer_offset == other.buffer_offset && sequence == other.sequence;
}

uint64_t CollectiveCall::digest() const {
  uint64_t predivide_bits;
  std::memcpy(&predivide_bits, &predivide, sizeof predivide_bits);
  uint64_t hash = static_cast<uint64_t>(verb) | static_cast<uint64_t>(dtype) << 8 |
                  static_cast<uint64_t>(op) << 16 | static_cast<uint64_t>(root) << 32;
  for (uint64_t word : {static_cast<uint64_t>(numel), predivide_bits, static_cast<uint64_t>(buffer),
                        static_cast<uint64_t>(buffer_offset), sequence}) {
    hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15ull + word;
  }
  return (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ull;
}

std::string CollectiveCall::describe() const {
  std::string text = c10::str(verb_name(verb), " #", sequence);
  if (verb == Verb::barrier || verb == Verb::split || verb == Verb::abandoned) {
    return text;
  }
  if (verb == Verb::graph_launch) {
    return c10::str(text, " of ", numel, " captured collectives");
  }
  text += c10::str(" of ", c10::toString(dtype), "[", numel, "]");
  if (reduces(verb)) {
    text += c10::str(", ", op_name(op));
  }
  if (predivide != 1.0) {
    text += c10::str(", predivide ", predivide);
  }
  if (verb == Verb::broadcast) {
    text += c10::str(", root ", root);
  }
  if (buffer != kPrivate) {
    text += c10::str(", at byte ", buffer_offset, " of shared buffer ", buffer);
  }
  return text;
}

}  // namespace lockstep::detail
