#pragma once

#include <memory>
#include <vector>

#include "streams.h"

/// Graphs: what captures record, and their launches.

struct CUgraphNode_st {
  enum class Kind { kWork, kRecordEvent, kWaitForEvent };
  Kind kind = Kind::kWork;
  fake_cuda::Piece piece;
  cudaEvent_t event = nullptr;         // of an external event's record or wait
  std::vector<CUgraphNode_st*> after;  // nodes of the same graph, all with lower positions
  size_t position = 0;
};

struct CUgraph_st {
  CUgraphNode_st* add(fake_cuda::Piece piece, std::vector<CUgraphNode_st*> after);
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

/// A graph that is ready to launch: a copy, so that the graph may go.
struct CUgraphExec_st {
  explicit CUgraphExec_st(const CUgraph_st& graph);
  CUgraphExec_st(const CUgraphExec_st&) = delete;
  CUgraphExec_st& operator=(const CUgraphExec_st&) = delete;

  /// Each node becomes a piece of the queue, which comes after the nodes that it comes after and
  /// nothing else; two launches of one graph do not overlap, as CUDA has it. The lock is held.
  void launch(CUstream_st& stream);

 private:
  struct Node {
    CUgraphNode_st::Kind kind;
    fake_cuda::Piece piece;
    cudaEvent_t event;
    std::vector<size_t> after;
    uint32_t lane;
    bool is_last;  // nothing comes after it
  };
  void give_lanes();
  void before_launch(Node& node, fake_cuda::Piece& piece, std::vector<fake_cuda::ItemPtr>& after);

  std::vector<Node> nodes_;
  uint64_t number_ = 0;  // the last one in the lanes of the nodes
  fake_cuda::ItemPtr last_launch_;
};

namespace fake_cuda {

/// Whether the handle is a graph (or a launchable one) that nobody destroyed. The lock is held.
class Graphs {
 public:
  static Graphs& get();
  void add(cudaGraph_t graph) { graphs_.insert(graph); }
  void add(cudaGraphExec_t exec) { execs_.insert(exec); }
  bool remove(cudaGraph_t graph) { return graphs_.erase(graph) != 0; }
  bool remove(cudaGraphExec_t exec) { return execs_.erase(exec) != 0; }
  bool contains(cudaGraph_t graph) const { return graphs_.contains(graph); }
  bool contains(cudaGraphExec_t exec) const { return execs_.contains(exec); }

 private:
  std::unordered_set<cudaGraph_t> graphs_;
  std::unordered_set<cudaGraphExec_t> execs_;
};

/// Counts a kernel that will run, and makes it fault if the environment says so. The lock is held.
void count_launch(Piece& piece);

}  // namespace fake_cuda
