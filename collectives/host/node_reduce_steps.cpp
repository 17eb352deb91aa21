#include <lockstep/collectives/host/node_steps.h>
#include <lockstep/collectives/host/slice_sum.h>

#include <algorithm>
#include <cstring>

namespace lockstep::detail {
namespace {

/// The number of elements in `bytes`, rounded down to whole cache lines.
int64_t elements_in(int64_t bytes, int64_t element_size) {
  return bytes / 64 * 64 / element_size;
}

/// Each rank writes its tensor to the slot that the next rank used last, and sums all of them. With
/// two ranks the core that writes a line was the last to read it, which takes a third of the time
/// of a line that another core has read.
class SmallAllReduce final : public CollectiveStep {
 public:
  SmallAllReduce(NodeGroup& group, Span tensor, const kernels::Reduction& reduction,
                 uint64_t sequence)
      : CollectiveStep(/*chunks=*/1, /*staged=*/true, /*waits_for_peers=*/false),
        group_(group),
        tensor_(tensor),
        reduction_(reduction),
        rotation_(static_cast<int>(sequence / NodeGroup::kSlots % group.size())),
        sources_(static_cast<size_t>(group.size())) {
    touches(0, tensor.data, tensor.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    if (tensor_.numel > 0) {
      std::memcpy(group_.small_contributions(slot, rotation_)[group_.rank()], tensor_.data,
                  tensor_.bytes());
    }
  }

  bool reduce(int64_t chunk, int slot) override {
    std::copy_n(group_.small_contributions(slot, rotation_), sources_.size(), sources_.begin());
    sources_[static_cast<size_t>(group_.rank())] = tensor_.data;
    void* destination = tensor_.data;
    kernels::reduce(reduction_, tensor_.dtype, sources_.data(), group_.size(), tensor_.dtype,
                    &destination, 1, tensor_.numel);
    return true;
  }

 private:
  NodeGroup& group_;
  Span tensor_;
  kernels::Reduction reduction_;
  int rotation_;
  std::vector<const void*> sources_;
};

/// Each rank copies the slices that others sum to its staging memory, sums its own slice of all
/// ranks, writes the result to the places of the terms, and copies the other results from its
/// staging memory. So the core that writes a line was the last to read it; writing a line that
/// another core has read takes several times as long.
class StagedAllReduce final : public CollectiveStep {
 public:
  StagedAllReduce(NodeGroup& group, Span tensor, const kernels::Reduction& reduction,
                  InterNode* inter_node)
      : CollectiveStep(
            chunk_count(tensor.numel, elements_in(NodeGroup::kChunkBytes, tensor.element_size())),
            /*staged=*/true, /*waits_for_peers=*/true),
        group_(group),
        tensor_(tensor),
        columns_(inter_node == nullptr ? group.size() : inter_node->columns()),
        sum_(reduction, tensor.dtype, inter_node),
        sources_(static_cast<size_t>(group.size())),
        destinations_(static_cast<size_t>(group.size())) {
    touches(0, tensor.data, tensor.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    const Slice part = part_of(chunk);
    for (int column = 0; column < columns_; ++column) {
      const Slice slice = slice_of(part.size(), column, columns_, tensor_.element_size());
      if (column != group_.rank()) {
        copy(at(group_.contribution(group_.rank(), slot), slice.begin),
             tensor_.at(part.begin + slice.begin), slice);
      }
    }
  }

  bool reduce(int64_t chunk, int slot) override {
    if (group_.rank() >= columns_) {
      return true;
    }
    const Slice part = part_of(chunk);
    const Slice slice = slice_of(part.size(), group_.rank(), columns_, tensor_.element_size());
    for (int k = 0; k < group_.size(); ++k) {
      char* const of_rank = k == group_.rank() ? tensor_.at(part.begin + slice.begin)
                                               : at(group_.contribution(k, slot), slice.begin);
      sources_[static_cast<size_t>(k)] = of_rank;
      destinations_[static_cast<size_t>(k)] = of_rank;
    }
    return sum_.run(sources_, destinations_, slice.size());
  }

  void copy_out(int64_t chunk, int slot) override {
    const Slice part = part_of(chunk);
    for (int column = 0; column < columns_; ++column) {
      const Slice slice = slice_of(part.size(), column, columns_, tensor_.element_size());
      if (column != group_.rank()) {
        copy(tensor_.at(part.begin + slice.begin),
             at(group_.contribution(group_.rank(), slot), slice.begin), slice);
      }
    }
  }

 private:
  Slice part_of(int64_t chunk) const {
    return chunk_of(tensor_.numel, chunk,
                    elements_in(NodeGroup::kChunkBytes, tensor_.element_size()));
  }
  char* at(char* base, int64_t element) const { return base + element * tensor_.element_size(); }
  void copy(char* to, const char* from, const Slice& slice) const {
    if (slice.size() > 0) {
      std::memcpy(to, from, static_cast<size_t>(slice.size() * tensor_.element_size()));
    }
  }

  NodeGroup& group_;
  Span tensor_;
  int columns_;
  SliceSum sum_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

/// Each rank sums its slice of all tensors and writes the result to all tensors.
class SharedBufferAllReduce final : public CollectiveStep {
 public:
  SharedBufferAllReduce(NodeGroup& group, Span tensor, std::vector<char*> copies,
                        const kernels::Reduction& reduction, InterNode* inter_node)
      : CollectiveStep(chunk_count(tensor.numel, chunk_elements(tensor, inter_node)),
                       /*staged=*/false, /*waits_for_peers=*/true),
        rank_(group.rank()),
        tensor_(tensor),
        copies_(std::move(copies)),
        chunk_elements_(chunk_elements(tensor, inter_node)),
        columns_(inter_node == nullptr ? group.size() : inter_node->columns()),
        sum_(reduction, tensor.dtype, inter_node),
        sources_(copies_.size()),
        destinations_(copies_.size()) {
    touches(0, tensor.data, tensor.bytes());
  }

  bool reduce(int64_t chunk, int slot) override {
    if (rank_ >= columns_) {
      return true;
    }
    const Slice part = chunk_of(tensor_.numel, chunk, chunk_elements_);
    const Slice slice = slice_of(part.size(), rank_, columns_, tensor_.element_size());
    const int64_t offset = (part.begin + slice.begin) * tensor_.element_size();
    for (size_t k = 0; k < copies_.size(); ++k) {
      sources_[k] = copies_[k] + offset;
      destinations_[k] = copies_[k] + offset;
    }
    return sum_.run(sources_, destinations_, slice.size());
  }

 private:
  /// One chunk on a single node; else pieces, so that sums and transfers overlap.
  static int64_t chunk_elements(const Span& tensor, const InterNode* inter_node) {
    constexpr int64_t kTravelling = int64_t{4} << 20;
    return inter_node == nullptr ? std::max<int64_t>(1, tensor.numel)
                                 : elements_in(kTravelling, tensor.element_size());
  }

  int rank_;
  Span tensor_;
  std::vector<char*> copies_;
  int64_t chunk_elements_;
  int columns_;
  SliceSum sum_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

/// Each rank sums its share of all tensors into its own.
class SharedBufferReduceScatter final : public CollectiveStep {
 public:
  SharedBufferReduceScatter(NodeGroup& group, Span input, const std::vector<char*>& copies,
                            const kernels::Reduction& reduction)
      : CollectiveStep(/*chunks=*/1, /*staged=*/false, /*waits_for_peers=*/true),
        share_(input.numel / group.size()),
        own_(input.at(group.rank() * share_)),
        dtype_(input.dtype),
        reduction_(reduction) {
    touches(0, input.data, input.bytes());
    for (char* copy : copies) {
      sources_.push_back(copy + (own_ - input.data));
    }
  }

  bool reduce(int64_t chunk, int slot) override {
    void* destination = own_;
    kernels::reduce(reduction_, dtype_, sources_.data(), static_cast<int>(sources_.size()), dtype_,
                    &destination, 1, share_);
    return true;
  }

 private:
  int64_t share_;
  char* own_;
  c10::ScalarType dtype_;
  kernels::Reduction reduction_;
  std::vector<const void*> sources_;
};

class ReduceScatter final : public CollectiveStep {
 public:
  ReduceScatter(NodeGroup& group, Span output, Span input, const kernels::Reduction& reduction)
      : CollectiveStep(chunk_count(output.numel, block_elements(group, output)), /*staged=*/true,
                       /*waits_for_peers=*/false),
        group_(group),
        output_(output),
        input_(input),
        block_elements_(block_elements(group, output)),
        reduction_(reduction),
        sources_(static_cast<size_t>(group.size())) {
    touches(0, output.data, output.bytes());
    touches(1, input.data, input.bytes());
  }

  void copy_in(int64_t chunk, int slot) override {
    const Slice part = chunk_of(output_.numel, chunk, block_elements_);
    for (int k = 0; k < group_.size(); ++k) {
      if (k != group_.rank() && part.size() > 0) {
        std::memcpy(block(group_.rank(), slot, k), input_.at(k * output_.numel + part.begin),
                    static_cast<size_t>(part.size() * input_.element_size()));
      }
    }
  }

  bool reduce(int64_t chunk, int slot) override {
    const Slice part = chunk_of(output_.numel, chunk, block_elements_);
    const int own = group_.rank();
    for (int k = 0; k < group_.size(); ++k) {
      sources_[static_cast<size_t>(k)] =
          k == own ? input_.at(own * output_.numel + part.begin) : block(k, slot, own);
    }
    void* destination = output_.at(part.begin);
    kernels::reduce(reduction_, input_.dtype, sources_.data(), group_.size(), output_.dtype,
                    &destination, 1, part.size());
    return true;
  }

 private:
  static int64_t block_elements(const NodeGroup& group, const Span& output) {
    return elements_in(NodeGroup::kChunkBytes / group.size(), output.element_size());
  }
  /// Where rank `from` writes the share that rank `to` sums.
  char* block(int from, int slot, int to) const {
    return group_.contribution(from, slot) + to * block_elements_ * input_.element_size();
  }

  NodeGroup& group_;
  Span output_;
  Span input_;
  int64_t block_elements_;
  kernels::Reduction reduction_;
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<CollectiveStep> make_small_all_reduce(NodeGroup& group, Span tensor,
                                                      const kernels::Reduction& reduction,
                                                      uint64_t sequence) {
  return std::make_unique<SmallAllReduce>(group, tensor, reduction, sequence);
}

std::unique_ptr<CollectiveStep> make_staged_all_reduce(NodeGroup& group, Span tensor,
                                                       const kernels::Reduction& reduction,
                                                       InterNode* inter_node) {
  return std::make_unique<StagedAllReduce>(group, tensor, reduction, inter_node);
}

std::unique_ptr<CollectiveStep> make_shared_buffer_all_reduce(NodeGroup& group, Span tensor,
                                                              std::vector<char*> copies,
                                                              const kernels::Reduction& reduction,
                                                              InterNode* inter_node) {
  return std::make_unique<SharedBufferAllReduce>(group, tensor, std::move(copies), reduction,
                                                 inter_node);
}

std::unique_ptr<CollectiveStep> make_shared_buffer_reduce_scatter(
    NodeGroup& group, Span input, const std::vector<char*>& copies,
    const kernels::Reduction& reduction) {
  return std::make_unique<SharedBufferReduceScatter>(group, input, copies, reduction);
}

std::unique_ptr<CollectiveStep> make_reduce_scatter(NodeGroup& group, Span output, Span input,
                                                    const kernels::Reduction& reduction) {
  return std::make_unique<ReduceScatter>(group, output, input, reduction);
}

}  // namespace lockstep::detail
