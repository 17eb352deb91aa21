#include <lockstep/collectives/core/flight_record.h>

#include <c10/util/StringUtil.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string_view>

namespace lockstep::detail {
namespace {

// The names that PyTorch's analyser knows. A barrier has no sizes.
const char* torch_name(Verb verb) {
  switch (verb) {
    case Verb::all_reduce:
      return "all_reduce";
    case Verb::reduce_scatter:
      return "_reduce_scatter_base";
    case Verb::all_gather:
      return "_all_gather_base";
    case Verb::broadcast:
      return "broadcast";
    case Verb::graph_launch:
      return "coalesced";
    default:
      return "all_reduce_barrier";
  }
}

const char* torch_state(CollectiveLog::State state) {
  switch (state) {
    case CollectiveLog::State::complete:
      return "completed";
    case CollectiveLog::State::running:
    case CollectiveLog::State::failed:
      return "started";
    default:
      return "scheduled";
  }
}

std::string to_json(const CollectiveLog::Entry& entry, int size) {
  const CollectiveCall& call = entry.call;
  const int64_t output = call.verb == Verb::all_gather       ? call.numel * size
                         : call.verb == Verb::reduce_scatter ? call.numel / size
                                                             : call.numel;
  const auto dtypes = c10::str("[\"", c10::toString(call.dtype), "\"]");
  return c10::str(
      R"({"record_id":)", call.sequence, R"(,"pg_id":0,"process_group":["0","lockstep"],)",
      R"("collective_seq_id":)", call.sequence, R"(,"p2p_seq_id":0,"op_id":)", call.sequence,
      R"(,"is_p2p":false,"profiling_name":"nccl:)", torch_name(call.verb), R"(","state":")",
      torch_state(entry.state), R"(","retired":)",
      entry.state == CollectiveLog::State::complete ? "true" : "false", R"(,"time_created_ns":)",
      static_cast<int64_t>(entry.issued_at * 1e9),
      R"(,"time_discovered_started_ns":null,"time_discovered_completed_ns":null,)",
      R"("timeout_ms":0,"frames":[],"input_sizes":[[)", call.numel, R"(]],"output_sizes":[[)",
      output, R"(]],"input_dtypes":)", dtypes, R"(,"output_dtypes":)", dtypes, "}");
}

}  // namespace

std::string render_flight_record(const CollectiveLog& log, int size) {
  std::string ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks += (rank == 0 ? "" : ", ") + std::to_string(rank);
  }
  std::string entries;
  for (const CollectiveLog::Entry& entry : log.newest()) {
    entries += (entries.empty() ? "" : ",\n") + to_json(entry, size);
  }
  const std::string json =
      c10::str(R"({"version":"2.10","pg_config":{"0":{"name":"0","desc":"lockstep","ranks":"[)",
               ranks, R"(]"}},"pg_status":{},"entries":[)", entries, "]}");
  std::string pickle = "cjson\nloads\nX";  // the function, then the length of the text
  for (int byte = 0; byte < 4; ++byte) {
    pickle += static_cast<char>(json.size() >> (8 * byte) & 0xff);
  }
  return pickle + json + "\x85R.";  // the text in a tuple, the call, the end
}

void write_flight_record(const CollectiveLog& log, int rank, int size) noexcept {
  try {
    const char* prefix = std::getenv("LOCKSTEP_FLIGHT_RECORD");
    if (prefix == nullptr || *prefix == '\0') {
      return;
    }
    static std::mutex mutex;
    static std::set<std::string> written;
    const std::lock_guard<std::mutex> lock(mutex);
    const std::string path = prefix + std::to_string(rank);
    if (written.insert(path).second &&
        !(std::ofstream(path, std::ios::binary) << render_flight_record(log, size))) {
      std::fprintf(stderr, "lockstep: cannot write the flight record %s\n", path.c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: no flight record: %s\n", error.what());
  }
}

}  // namespace lockstep::detail
