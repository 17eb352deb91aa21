#include <lockstep/collectives/host/node_steps.h>

#include <cstring>

namespace lockstep::detail {
namespace {

constexpr int64_t kChunkBytes = static_cast<int64_t>(NodeGroup::kChunkBytes);

void copy_bytes(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) {
    std::memmove(to, from, static_cast<size_t>(bytes));
  }
}

class AllGather final : public CollectiveStep {
 public:
  AllGather(NodeGroup& group, Span output, Span input)
      : CollectiveStep(chunk_count(static_cast<int64_t>(input.bytes()), kChunkBytes),
                       /*staged=*/true, /*waits_for_peers=*/false),
        group_(group),
        output_(output.data),
        input_(input.data),
        bytes_(static_cast<int64_t>(input.bytes())) {
    touches(0, output.data, output.bytes());
    touches(1, input.data, input.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    const Slice part = chunk_of(bytes_, chunk, kChunkBytes);
    copy_bytes(group_.contribution(group_.rank(), slot), input_ + part.begin, part.size());
    copy_bytes(output_ + group_.rank() * bytes_ + part.begin, input_ + part.begin, part.size());
  }

  bool reduce(int64_t chunk, int slot) override {
    const Slice part = chunk_of(bytes_, chunk, kChunkBytes);
    for (int k = 0; k < group_.size(); ++k) {
      if (k != group_.rank()) {
        copy_bytes(output_ + k * bytes_ + part.begin, group_.contribution(k, slot), part.size());
      }
    }
    return true;
  }

 private:
  NodeGroup& group_;
  char* output_;
  const char* input_;
  int64_t bytes_;
};

class Broadcast final : public CollectiveStep {
 public:
  Broadcast(NodeGroup& group, Span tensor, int root)
      : CollectiveStep(chunk_count(static_cast<int64_t>(tensor.bytes()), kChunkBytes),
                       /*staged=*/true, /*waits_for_peers=*/false),
        group_(group),
        data_(tensor.data),
        bytes_(static_cast<int64_t>(tensor.bytes())),
        root_(root) {
    touches(0, tensor.data, tensor.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    if (group_.rank() == root_) {
      const Slice part = chunk_of(bytes_, chunk, kChunkBytes);
      copy_bytes(group_.contribution(root_, slot), data_ + part.begin, part.size());
    }
  }

  bool reduce(int64_t chunk, int slot) override {
    if (group_.rank() != root_) {
      const Slice part = chunk_of(bytes_, chunk, kChunkBytes);
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

std::unique_ptr<CollectiveStep> make_all_gather(NodeGroup& group, Span output, Span input) {
  return std::make_unique<AllGather>(group, output, input);
}

std::unique_ptr<CollectiveStep> make_broadcast(NodeGroup& group, Span tensor, int root) {
  return std::make_unique<Broadcast>(group, tensor, root);
}

std::unique_ptr<CollectiveStep> make_barrier() {
  return std::make_unique<Barrier>();
}

}  // namespace lockstep::detail
