/// Checks of graphs: nothing runs as they are recorded, and their nodes run in the recorded order.
#include "streams.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

class Graph {
 public:
  template <typename Record>
  Graph(cudaStream_t stream, Record record) {
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    record();
    must(cudaStreamEndCapture(stream, &graph_));
    must(cudaGraphInstantiateWithFlags(&exec_, graph_, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { must(cudaGraphLaunch(exec_, stream)); }
  cudaGraph_t get() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

void replays() {
  const Stream stream;
  const DeviceBytes in;
  const DeviceBytes out;
  in.fill(1, stream);
  out.fill(0, stream);
  const Graph graph(stream, [&] { out.copy_from(in, stream); });
  expect(out.value(stream) == 0, "manual: nothing runs as it is recorded");
  graph.launch(stream);
  expect(out.value(stream) == 1, "a launch runs it");
  in.fill(2, stream);
  graph.launch(stream);
  expect(out.value(stream) == 2, "and again, with what the memory has then");
}

void branches() {
  const Stream one;
  const Stream two;
  const DeviceBytes a;
  const DeviceBytes b;
  const DeviceBytes c;
  const Graph graph(one, [&] {
    a.fill(1, one);
    order(one, two);
    b.copy_from(a, two);
    c.copy_from(a, one);
    b.fill(2, two);
    order(two, one);
    c.copy_from(b, one);
    a.fill(9, one);
  });
  size_t nodes = 0;
  must(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
  expect(nodes == 6, "a node for each piece of work, none for events");
  std::vector<cudaGraphNode_t> handles(nodes);
  must(cudaGraphGetNodes(graph.get(), handles.data(), &nodes));
  size_t edges = 0;
  must(cudaGraphNodeGetDependencies(handles[4], nullptr, nullptr, &edges));
  expect(edges == 2, "the node after a join comes after both streams");
  for (int i = 0; i < 5; ++i) {
    graph.launch(one);
    expect(a.value(one) == 9, "branches: a");
    expect(c.value(one) == 2, "branches: c");
  }
}

void launches_in_order() {
  const Stream one;
  const Stream two;
  const DeviceBytes a;
  const DeviceBytes b;
  const Graph graph(one, [&] { b.copy_from(a, one); });
  a.fill(1, one);
  graph.launch(one);
  graph.launch(two);  // comes after the other launch
  a.fill(2, two);
  expect(b.value(two) == 1, "manual: two launches of a graph do not overlap");
  b.fill(5, one);
  graph.launch(one);
  b.fill(6, one);
  expect(b.value(one) == 6, "manual: a launch is in the order of its stream");
}

void short_lives() {
  const Stream stream;
  const DeviceBytes a;
  const DeviceBytes b;
  a.fill(4, stream);
  {
    const Graph graph(stream, [&] { b.copy_from(a, stream); });
    graph.launch(stream);
  }
  expect(b.value(stream) == 4, "manual: a graph may go while its launch is pending");
  cudaGraphExec_t none = reinterpret_cast<cudaGraphExec_t>(&none);
  expect_error(cudaGraphLaunch(none, stream), cudaErrorInvalidValue, "a launch of no graph");
}

void pinned_memory() {
  const Stream stream;
  const DeviceBytes a;
  const PinnedBytes host;
  const Graph graph(stream, [&] {
    must(cudaMemcpyAsync(a.get(), host.get(), kBytes, cudaMemcpyHostToDevice, stream));
  });
  for (int i = 1; i < 4; ++i) {
    std::memset(host.get(), i, kBytes);
    graph.launch(stream);
    expect(a.value(stream) == i, "a copy from page-locked memory is made at each launch");
  }
}

void external_events() {
  const Stream stream;
  const Stream other;
  const DeviceBytes a;
  const DeviceBytes b;
  const Event before;
  const Event after;
  const Graph graph(stream, [&] {
    must(cudaStreamWaitEvent(stream, before, cudaEventWaitExternal));
    b.copy_from(a, stream);
    must(cudaEventRecordWithFlags(after, stream, cudaEventRecordExternal));
  });
  for (int i = 1; i < 4; ++i) {
    a.fill(i, other);
    must(cudaEventRecord(before, other));
    graph.launch(stream);
    must(cudaStreamWaitEvent(other, after, 0));
    expect(b.value(other) == i, "manual: events of a graph are recorded and waited for as it runs");
  }
}

void ids() {
  const Stream stream;
  const DeviceBytes a;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* tips = nullptr;
  size_t count = 0;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  a.fill(1, stream);
  must(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &tips, nullptr, &count));
  expect(status == cudaStreamCaptureStatusActive && id != 0 && graph != nullptr && count == 1,
         "cudaStreamGetCaptureInfo");
  cudaGraph_t ended = nullptr;
  must(cudaStreamEndCapture(stream, &ended));
  expect(ended == graph, "the graph is the one that it named");
  must(cudaGraphDestroy(ended));
  expect_error(cudaGraphDestroy(ended), cudaErrorInvalidValue, "a graph is destroyed once");
}

}  // namespace

int main() {
  replays();
  branches();
  launches_in_order();
  short_lives();
  pinned_memory();
  external_events();
  ids();
  return finish();
}
