#include <lockstep/collectives/mpi/slice_chain.h>

namespace lockstep::detail {
namespace {

constexpr int kSumTag = 3;
constexpr int kTotalTag = 4;

}  // namespace

SliceChain::SliceChain(const MpiComm& column, const NodeLayout& layout)
    : column_(column), node_(layout.own_node), nodes_(static_cast<int>(layout.nodes.size())) {}

void SliceChain::start(const kernels::Reduction& reduction, const std::vector<const void*>& sources,
                       Span result) {
  reduction_ = reduction;
  sources_ = sources;
  result_ = result;
  sum_ = {nullptr, result.numel, kernels::sum_dtype(result.dtype)};
  sum_memory_.resize(sum_.bytes());
  sum_.data = sum_memory_.data();
  pieces_ = chunk_count(result.numel, kPieceElements);
  summed_ = 0;
  returned_ = 0;
  if (!is_first()) {
    receive(incoming_sums_, sum_, node_ - 1, kSumTag);
  }
  if (!is_last()) {
    receive(incoming_results_, result_, node_ + 1, kTotalTag);
  }
}

bool SliceChain::test() {
  for (; summed_ < pieces_; ++summed_) {
    if (!is_first() && !column_.test(incoming_sums_[static_cast<size_t>(summed_)])) {
      break;
    }
    sum(piece(summed_));
    if (!is_last()) {
      send(sum_, piece(summed_), node_ + 1, kSumTag);
    }
  }
  for (; returned_ < summed_; ++returned_) {
    if (!is_last() && !column_.test(incoming_results_[static_cast<size_t>(returned_)])) {
      break;
    }
    if (!is_first()) {
      send(result_, piece(returned_), node_ - 1, kTotalTag);
    }
  }
  const bool all_sent = column_.test_all(sends_);
  if (all_sent) {
    sends_.clear();
  }
  return returned_ == pieces_ && all_sent;
}

void SliceChain::sum(const Slice& piece) {
  std::vector<const void*> summands;
  if (!is_first()) {
    summands.push_back(sum_.at(piece.begin));
  }
  // The kernel takes the sum and the elements in one dtype; only elements are scaled.
  const bool convert = sum_.dtype != result_.dtype || reduction_.before != 1.0;
  converted_.resize(convert ? sources_.size() : 0);
  for (size_t k = 0; k < sources_.size(); ++k) {
    const void* elements =
        static_cast<const char*>(sources_[k]) + piece.begin * result_.element_size();
    if (convert) {
      converted_[k].resize(static_cast<size_t>(piece.size() * sum_.element_size()));
      void* scaled = converted_[k].data();
      kernels::reduce({reduction_.kind, reduction_.before}, result_.dtype, &elements, 1, sum_.dtype,
                      &scaled, 1, piece.size());
      elements = scaled;
    }
    summands.push_back(elements);
  }
  const Span& to = is_last() ? result_ : sum_;
  void* destination = to.at(piece.begin);
  kernels::reduce({reduction_.kind, 1.0, is_last() ? reduction_.divisor : 1.0}, sum_.dtype,
                  summands.data(), static_cast<int>(summands.size()), to.dtype, &destination, 1,
                  piece.size());
}

void SliceChain::send(const Span& from, const Slice& piece, int node, int tag) {
  sends_.emplace_back();
  column_.isend(from.at(piece.begin), static_cast<int>(piece.size() * from.element_size()), node,
                tag, sends_.back());
}

void SliceChain::receive(std::vector<MpiRequest>& requests, const Span& to, int node, int tag) {
  requests.assign(static_cast<size_t>(pieces_), MpiRequest{0});
  for (int64_t k = 0; k < pieces_; ++k) {
    column_.irecv(to.at(piece(k).begin), static_cast<int>(piece(k).size() * to.element_size()),
                  node, tag, requests[static_cast<size_t>(k)]);
  }
}

}  // namespace lockstep::detail
