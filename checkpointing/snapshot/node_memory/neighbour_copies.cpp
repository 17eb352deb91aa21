#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <lockstep/checkpointing/snapshot/impl/neighbour_copies.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/outcome.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <sstream>
#include <utility>

namespace lockstep::snapshot {
namespace {

bool has_ending(const std::string& name, const std::string& ending) {
  return name.size() >= ending.size() &&
         name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

}  // namespace

NeighbourCopies::NeighbourCopies(detail::Agreement agreement, PrivateFolder folder,
                                 size_t chunk_bytes)
    : agreement_(std::move(agreement)), folder_(std::move(folder)), chunk_bytes_(chunk_bytes) {
  const Communicator& ranks = agreement_.communicator();
  const bool is_first = ranks.local_rank() == 0;
  const std::vector<std::string> firsts =
      agreement_.gather("finding the nodes", [&] { return std::string(is_first ? "first" : ""); });
  for (size_t rank = 0; rank < firsts.size(); ++rank) {
    if (!firsts[rank].empty()) {
      first_ranks_.push_back(static_cast<int>(rank));
    }
  }
  const size_t nodes = first_ranks_.size();
  // Node n sends to node n + 1. A first rank is in two pairs, but in at most one of each split:
  // even n, odd n, and the last n if the number of nodes is odd.
  std::optional<Error> mine;  // thrown later: the other ranks go on to the next split
  for (int turn = 0; nodes > 1 && turn < 3; ++turn) {
    int color = -1;
    bool sends = false;
    for (size_t node = 0; node < nodes; ++node) {
      const bool is_last_of_odd = nodes % 2 == 1 && node + 1 == nodes;
      if ((is_last_of_odd ? 2 : static_cast<int>(node % 2)) != turn) {
        continue;
      }
      const bool is_sender = first_ranks_[node] == ranks.rank();
      if (is_sender || first_ranks_[(node + 1) % nodes] == ranks.rank()) {
        color = static_cast<int>(node);
        sends = is_sender;
      }
    }
    try {
      const Communicator pair = ranks.split(color, sends ? 0 : 1);
      if (color >= 0) {
        streams_.push_back(Stream{pair, static_cast<size_t>(color)});
      }
    } catch (const CommunicationError&) {
      throw;
    } catch (const Error& error) {
      mine = error;
    }
  }
  agreement_.raise_if_any(mine);
}

/// A rank that has failed still takes part in every broadcast.
void NeighbourCopies::attempt(const std::function<void()>& action) {
  if (!outcome_.error) {
    outcome_ = agreement_.outcome_of([&] {
      action();
      return "";
    });
  }
}

void NeighbourCopies::start(const std::string& path) {
  for (Stream& stream : streams_) {
    stream.work.wait();  // a chunk of an abandoned copy
    stream = Stream{stream.pair, stream.from};
  }
  path_ = path;
  outcome_ = agreement_.outcome_of([&] {
    if (!streams_.empty()) {
      folder_.check_content();
    }
    std::string text;
    for (const std::string& name : streams_.empty() ? std::vector<std::string>() : names_in(path)) {
      if (has_ending(name, ".safetensors")) {
        text += name + " " + std::to_string(std::filesystem::file_size(path + "/" + name)) + "\n";
      }
    }
    return text;
  });
  const std::vector<detail::Outcome> lists = agreement_.exchange(std::exchange(outcome_, {}));
  chunks_left_ = 0;
  failure_.clear();
  if (const auto failure = detail::failure_in(lists)) {
    failure_ = failure->what();
    return;
  }
  std::vector<std::vector<File>> of_nodes;
  for (const int rank : first_ranks_) {
    std::istringstream lines(lists[static_cast<size_t>(rank)].text);
    of_nodes.emplace_back();
    size_t chunks = 0;
    for (File file; lines >> file.name >> file.bytes;) {
      of_nodes.back().push_back(file);
      chunks += chunks_of(file.bytes);
    }
    chunks_left_ = std::max(chunks_left_, chunks);
  }
  for (Stream& stream : streams_) {
    stream.files = of_nodes[stream.from];
    begin_chunk(stream);
  }
}

void NeighbourCopies::begin_chunk(Stream& stream) {
  if (stream.file == stream.files.size()) {
    return;
  }
  const File& file = stream.files[stream.file];
  const std::string path = path_ + "/" + file.name;
  attempt([&] {
    if (stream.done > 0) {
      return;
    }
    if (stream.sends()) {
      stream.source = std::make_shared<MappedFile>(path);
    } else {
      stream.target = folder_.files()->create_file(path + ".part", kPrivateFileMode);
    }
  });
  const auto count = static_cast<int64_t>(std::min(chunk_bytes_, file.bytes - stream.done));
  stream.chunk = stream.sends() && stream.source ? at::from_blob(
                                                       stream.source->data() + stream.done, {count},
                                                       [kept = stream.source](void*) {}, at::kByte)
                                                 : at::zeros({count}, at::kByte);
  stream.work = stream.pair.broadcast(stream.chunk, 0);
}

void NeighbourCopies::end_chunk(Stream& stream) {
  if (stream.file == stream.files.size()) {
    return;
  }
  stream.work.wait();
  const auto count = static_cast<size_t>(stream.chunk.numel());
  stream.done += count;
  const bool is_whole = stream.done == stream.files[stream.file].bytes;
  attempt([&] {
    if (stream.target) {
      stream.target->write(stream.chunk.const_data_ptr(), count);
      if (is_whole) {
        stream.target->close();
      }
    }
  });
  stream.chunk.reset();
  if (is_whole) {
    stream.source.reset();
    stream.target.reset();
    stream.done = 0;
    ++stream.file;
  }
}

bool NeighbourCopies::is_chunk_done() {
  bool ready = true;
  for (Stream& stream : streams_) {
    ready = stream.work.test() && ready;  // test() of every stream, since it makes progress
  }
  return ready;
}

void NeighbourCopies::abandon() noexcept {
  for (Stream& stream : streams_) {
    stream.target.reset();
  }
}

std::optional<std::string> NeighbourCopies::advance() {
  if (chunks_left_ > 0) {
    for (Stream& stream : streams_) {
      end_chunk(stream);
    }
    if (--chunks_left_ > 0) {
      for (Stream& stream : streams_) {
        begin_chunk(stream);
      }
      return std::nullopt;
    }
  }
  return failure_.empty() ? finish() : failure_;
}

/// Renames the files once all are complete on all nodes, so no incomplete file has its final name.
std::string NeighbourCopies::finish() {
  const auto failure = detail::failure_in(agreement_.exchange(std::exchange(outcome_, {})));
  for (const Stream& stream : streams_) {
    if (!stream.sends() && failure) {
      remove_unfinished(stream);
    } else if (!stream.sends()) {
      attempt([&] { put_in_place(stream); });
    }
  }
  if (failure) {
    return failure->what();
  }
  const auto late = detail::failure_in(agreement_.exchange(std::exchange(outcome_, {})));
  for (const Stream& stream : streams_) {
    if (!stream.sends() && late) {
      remove_unfinished(stream);
    }
  }
  return late ? late->what() : "";
}

void NeighbourCopies::put_in_place(const Stream& stream) const {
  for (const File& file : stream.files) {
    const std::string path = path_ + "/" + file.name;
    folder_.files()->rename(path + ".part", path);
  }
}

void NeighbourCopies::remove_unfinished(const Stream& stream) const {
  for (const File& file : stream.files) {
    try {
      folder_.files()->remove_file(path_ + "/" + file.name + ".part");
    } catch (const Error&) {
      continue;  // it is removed with the snapshot
    }
  }
}

}  // namespace lockstep::snapshot
