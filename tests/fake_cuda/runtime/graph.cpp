#include "graph.h"

#include <algorithm>
#include <cstdio>

#include "../common/faults.h"
#include "report.h"

using fake_cuda::ItemPtr;
using fake_cuda::Piece;

CUgraphNode_st* CUgraph_st::add(Piece piece, std::vector<CUgraphNode_st*> after) {
  auto node = std::make_unique<CUgraphNode_st>();
  node->piece = std::move(piece);
  node->after = std::move(after);
  node->position = nodes.size();
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

CUgraphExec_st::CUgraphExec_st(const CUgraph_st& graph) {
  for (const auto& node : graph.nodes) {
    std::vector<size_t> after;
    for (const CUgraphNode_st* before : node->after) {
      after.push_back(before->position);
    }
    nodes_.push_back({node->kind, node->piece, node->event, std::move(after), 0, true});
  }
  for (const Node& node : nodes_) {
    for (const size_t before : node.after) {
      nodes_[before].is_last = false;
    }
  }
  if (fake_cuda::races_are_checked()) {
    give_lanes();
  }
}

/// A lane for each chain of nodes: nodes of one lane must come one after the other, and clocks are
/// the smaller the fewer lanes there are.
void CUgraphExec_st::give_lanes() {
  static int graphs = 0;
  const std::string name = " of graph " + std::to_string(++graphs);
  std::vector<bool> is_continued(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const auto free = std::find_if(node.after.begin(), node.after.end(),
                                   [&](size_t before) { return !is_continued[before]; });
    if (free == node.after.end()) {
      node.lane = fake_cuda::new_lane("node " + std::to_string(i) + name);
    } else {
      is_continued[*free] = true;
      node.lane = nodes_[*free].lane;
    }
  }
}

void CUgraphExec_st::launch(CUstream_st& stream) {
  fake_cuda::Streams& streams = fake_cuda::Streams::get();
  const ItemPtr begin = streams.append(stream, Piece("begin of a graph"), {last_launch_});
  std::vector<ItemPtr> items;
  std::vector<ItemPtr> ends;
  for (Node& node : nodes_) {
    std::vector<ItemPtr> after;
    for (const size_t before : node.after) {
      after.push_back(items[before]);
    }
    if (after.empty()) {
      after.push_back(begin);
    }
    Piece piece = node.piece;
    before_launch(node, piece, after);
    items.push_back(
        fake_cuda::WorkQueue::get().submit(std::move(piece), node.lane, ++number_, after));
    if (node.kind == CUgraphNode_st::Kind::kRecordEvent) {
      node.event->item = items.back();
      node.event->capture = nullptr;
    }
    if (node.is_last) {
      ends.push_back(items.back());
    }
  }
  last_launch_ = streams.append(stream, Piece("end of a graph"), std::move(ends));
}

void CUgraphExec_st::before_launch(Node& node, Piece& piece, std::vector<ItemPtr>& after) {
  if (piece.is_kernel) {
    fake_cuda::count_launch(piece);
  }
  if (node.kind == CUgraphNode_st::Kind::kWaitForEvent) {
    after.push_back(node.event->item);
  }
}

namespace fake_cuda {

Graphs& Graphs::get() {
  static auto& graphs = *new Graphs;
  return graphs;
}

void count_launch(Piece& piece) {
  count_kernel(piece.what);
  if (setting("FAKE_CUDA_LOG", 0L) != 0) {
    std::fprintf(stderr, "fake cuda: launch of %s\n", piece.what);
  }
  if (fails_now(Planted::kFailedLaunch)) {
    piece.work = []() -> bool {
      throw DeviceFault(cudaErrorIllegalAddress, "planted fault of a launch");
    };
  }
}

}  // namespace fake_cuda
