#include <lockstep/collectives/host/node_steps.h>

#include <cstring>

namespace lockstep::detail {
namespace {

void copy_bytes(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) {
    std::memmove(to, from, static_cast<size_t>(bytes));
  }
}

/// Each rank copies every piece from staging memory: those of this node's ranks from their slots,
/// those of other nodes from the arrival slots of the columns.
class AllGather final : public CollectiveStep {
 public:
  AllGather(NodeGroup& group, const std::vector<int>& ranks, Span output, Span input,
            InterNode* inter_node)
      : CollectiveStep(chunk_count(static_cast<int64_t>(input.bytes()), piece_bytes(inter_node)),
                       /*staged=*/true, /*waits_for_peers=*/inter_node != nullptr),
        group_(group),
        ranks_(ranks),
        inter_node_(inter_node),
        output_(output.data),
        input_(input.data),
        bytes_(static_cast<int64_t>(input.bytes())),
        piece_bytes_(piece_bytes(inter_node)) {
    touches(0, output.data, output.bytes());
    touches(1, input.data, input.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    const Slice part = part_of(chunk);
    char* staged = group_.contribution(group_.rank(), slot);
    copy_bytes(staged, input_ + part.begin, part.size());
    copy_to_output(ranks_[static_cast<size_t>(group_.rank())], part, input_ + part.begin);
  }

  bool reduce(int64_t chunk, int slot) override {
    const Slice part = part_of(chunk);
    const bool has_column = inter_node_ != nullptr && group_.rank() < inter_node_->columns();
    if (!started_) {
      if (has_column) {
        inter_node_->exchange_pieces(group_.contributions(slot), part.size(),
                                     group_.arrival_slot(group_.rank(), slot));
      }
      for (int k = 0; k < group_.size(); ++k) {
        if (k != group_.rank()) {
          copy_to_output(ranks_[static_cast<size_t>(k)], part, group_.contribution(k, slot));
        }
      }
      started_ = true;
    }
    if (has_column && !inter_node_->pieces_have_arrived()) {
      return false;
    }
    started_ = false;
    return true;
  }

  void copy_out(int64_t chunk, int slot) override {
    if (inter_node_ == nullptr) {
      return;
    }
    const Slice part = part_of(chunk);
    for (int column = 0; column < inter_node_->columns(); ++column) {
      const char* arrived = group_.arrival_slot(column, slot);
      for (int rank : inter_node_->arrivals()[static_cast<size_t>(column)]) {
        copy_to_output(rank, part, arrived);
        arrived += part.size();
      }
    }
  }

 private:
  /// The pieces that arrive at a column share the memory of one chunk.
  static int64_t piece_bytes(const InterNode* inter_node) {
    return inter_node == nullptr
               ? NodeGroup::kChunkBytes
               : NodeGroup::kChunkBytes / static_cast<int64_t>(inter_node->most_arrivals());
  }

  Slice part_of(int64_t chunk) const { return chunk_of(bytes_, chunk, piece_bytes_); }
  void copy_to_output(int rank, const Slice& part, const char* from) const {
    copy_bytes(output_ + rank * bytes_ + part.begin, from, part.size());
  }

  NodeGroup& group_;
  const std::vector<int> ranks_;
  InterNode* inter_node_;
  char* output_;
  const char* input_;
  const int64_t bytes_;
  const int64_t piece_bytes_;
  bool started_ = false;
};

class Broadcast final : public CollectiveStep {
 public:
  Broadcast(NodeGroup& group, Span tensor, int root)
      : CollectiveStep(chunk_count(static_cast<int64_t>(tensor.bytes()), NodeGroup::kChunkBytes),
                       /*staged=*/true, /*waits_for_peers=*/false),
        group_(group),
        data_(tensor.data),
        bytes_(static_cast<int64_t>(tensor.bytes())),
        root_(root) {
    touches(0, tensor.data, tensor.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    if (group_.rank() == root_) {
      const Slice part = chunk_of(bytes_, chunk, NodeGroup::kChunkBytes);
      copy_bytes(group_.contribution(root_, slot), data_ + part.begin, part.size());
    }
  }

  bool reduce(int64_t chunk, int slot) override {
    if (group_.rank() != root_) {
      const Slice part = chunk_of(bytes_, chunk, NodeGroup::kChunkBytes);
      copy_bytes(data_ + part.begin, group_.contribution(root_, slot), part.size());
    }
    return true;
  }

 private:
  NodeGroup& group_;
  char* data_;
  int64_t bytes_;
  int root_;
};

class Barrier final : public CollectiveStep {
 public:
  Barrier() : CollectiveStep(/*chunks=*/1, /*staged=*/false, /*waits_for_peers=*/false) {}
  bool reduce(int64_t chunk, int slot) override { return true; }
};

}  // namespace

std::unique_ptr<CollectiveStep> make_all_gather(NodeGroup& group, const std::vector<int>& ranks,
                                                Span output, Span input, InterNode* inter_node) {
  return std::make_unique<AllGather>(group, ranks, output, input, inter_node);
}

std::unique_ptr<CollectiveStep> make_broadcast(NodeGroup& group, Span tensor, int root) {
  return std::make_unique<Broadcast>(group, tensor, root);
}

std::unique_ptr<CollectiveStep> make_barrier() {
  return std::make_unique<Barrier>();
}

}  // namespace lockstep::detail
