/// Checks of the fake NCCL: collectives and messages, their order, captures.
#include <cmath>
#include <string>
#include <vector>

#include "nccl_ranks.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

/// Bits of fp16 numbers that the checks use.
constexpr uint16_t kHalfOne = 0x3c00;
constexpr uint16_t kHalf2048 = 0x6800;

void sums_ascend(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  // 2048 + 1 is 2048 in fp16: only the order 1 + 1 + 1 + 1 + 2044 could see the ones.
  DeviceArray<uint16_t> halves(3, rank.rank() == 0 ? kHalf2048 : kHalfOne);
  // 1e8 - 1e8 + 1 + 0 is 1, in any other order of the ranks 0 or 1.
  const float numbers[] = {1e8F, -1e8F, 1, 0};
  DeviceArray<float> floats(3, numbers[rank.rank()]);
  require_nccl(ncclAllReduce(halves.data(), halves.data(), 3, ncclFloat16, ncclSum, comm, stream),
               ncclSuccess, "ncclAllReduce");
  require_nccl(ncclAllReduce(floats.data(), floats.data(), 3, ncclFloat32, ncclSum, comm, stream),
               ncclSuccess, "ncclAllReduce");
  for (const uint16_t bits : halves.values()) {
    require(bits == kHalf2048, "fp16 is not rounded at each rank: " + std::to_string(bits));
  }
  for (const float number : floats.values()) {
    require(number == 1, "not in the order of the ranks: " + std::to_string(number));
  }
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

void all_kinds(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  const auto ranks = static_cast<size_t>(rank.ranks());
  constexpr size_t kCount = 300000;  // several parts, the last one smaller
  const auto value = [](size_t who, size_t i) {
    return static_cast<float>(who + 1) * 0.1F + static_cast<float>(i % 97);
  };
  std::vector<float> own(kCount * ranks);
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = value(rank.rank(), i);
  }
  DeviceArray<float> input(own);
  DeviceArray<float> sums(own.size(), 0);
  DeviceArray<float> scattered(kCount, 0);
  DeviceArray<float> gathered(own.size(), 0);
  DeviceArray<float> at_root(own.size(), -1);
  DeviceArray<float> sent(own);
  require_nccl(
      ncclAllReduce(input.data(), sums.data(), own.size(), ncclFloat32, ncclSum, comm, stream),
      ncclSuccess, "ncclAllReduce");
  require_nccl(
      ncclReduceScatter(input.data(), scattered.data(), kCount, ncclFloat32, ncclSum, comm, stream),
      ncclSuccess, "ncclReduceScatter");
  require_nccl(ncclAllGather(input.data(), gathered.data(), kCount, ncclFloat32, comm, stream),
               ncclSuccess, "ncclAllGather");
  require_nccl(
      ncclReduce(input.data(), at_root.data(), own.size(), ncclFloat32, ncclSum, 1, comm, stream),
      ncclSuccess, "ncclReduce");
  require_nccl(ncclBroadcast(sent.data(), sent.data(), own.size(), ncclFloat32, 2, comm, stream),
               ncclSuccess, "ncclBroadcast");
  const auto summed = sums.values();
  const auto block = scattered.values();
  const auto all = gathered.values();
  const auto reduced = at_root.values();
  const auto received = sent.values();
  for (size_t i = 0; i < own.size(); ++i) {
    float sum = value(0, i);
    for (size_t who = 1; who < ranks; ++who) {
      sum += value(who, i);
    }
    require(summed[i] == sum, "all-reduce " + std::to_string(i));
    require(all[i] == value(i / kCount, i % kCount), "all-gather " + std::to_string(i));
    require(reduced[i] == (rank.rank() == 1 ? sum : -1), "reduce " + std::to_string(i));
    require(received[i] == value(2, i), "broadcast " + std::to_string(i));
  }
  for (size_t i = 0; i < kCount; ++i) {
    require(block[i] == summed[rank.rank() * kCount + i], "reduce-scatter " + std::to_string(i));
  }
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

void operators(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  const auto reduced = [&](ncclRedOp_t op, float value) {
    DeviceArray<float> array(5, value);
    require_nccl(ncclAllReduce(array.data(), array.data(), 5, ncclFloat32, op, comm, stream),
                 ncclSuccess, "ncclAllReduce");
    return array.values()[4];
  };
  const auto own = static_cast<float>(rank.rank() + 1);
  require(reduced(ncclProd, own) == 6, "product");
  require(reduced(ncclMax, own) == 3, "max");
  require(reduced(ncclMin, own) == 1, "min");
  require(reduced(ncclMax, rank.rank() == 1 ? NAN : own) == 3, "max ignores NaN");
  require(reduced(ncclAvg, own) == (1 * (1.0F / 3) + 2 * (1.0F / 3)) + 3 * (1.0F / 3), "average");
  float factor = own * 0.5F;
  ncclRedOp_t op = ncclSum;
  require_nccl(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm),
               ncclSuccess, "ncclRedOpCreatePreMulSum");
  factor = -1;  // it was read
  require(reduced(op, own) == 0.5F * 1 + 1.0F * 2 + 1.5F * 3, "pre-multiplied sum");
  DeviceArray<float> on_device(1, own);
  ncclRedOp_t later = ncclSum;
  require_nccl(
      ncclRedOpCreatePreMulSum(&later, on_device.data(), ncclFloat32, ncclScalarDevice, comm),
      ncclSuccess, "ncclRedOpCreatePreMulSum");
  require(reduced(later, own) == 1 + 4 + 9, "pre-multiplied sum, factor on the device");
  require_nccl(ncclRedOpDestroy(op, comm), ncclSuccess, "ncclRedOpDestroy");
  DeviceArray<float> array(5, own);
  require_nccl(ncclAllReduce(array.data(), array.data(), 5, ncclFloat32, op, comm, stream),
               ncclInvalidArgument, "an operator that was destroyed");
  DeviceArray<int> whole(5, rank.rank() == 0 ? -8 : 1);
  require_nccl(ncclAllReduce(whole.data(), whole.data(), 5, ncclInt32, ncclAvg, comm, stream),
               ncclSuccess, "ncclAllReduce");
  require(whole.values()[0] == -2, "average of integers");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

void messages(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  constexpr size_t kCount = 50000;  // several parts
  const int next = (rank.rank() + 1) % rank.ranks();
  const int last = (rank.rank() + rank.ranks() - 1) % rank.ranks();
  DeviceArray<int> sent(kCount, 100 + rank.rank());
  DeviceArray<int> received(kCount, 0);
  DeviceArray<int> also_sent(2 * kCount, 200 + rank.rank());  // messages of a pair keep their order
  DeviceArray<int> also_received(2 * kCount, 0);
  DeviceArray<int> sum(1, 1);
  require_nccl(ncclGroupStart(), ncclSuccess, "ncclGroupStart");
  require_nccl(ncclSend(sent.data(), kCount, ncclInt32, next, comm, stream), ncclSuccess,
               "ncclSend");
  require_nccl(ncclRecv(received.data(), kCount, ncclInt32, last, comm, stream), ncclSuccess,
               "ncclRecv");
  require_nccl(ncclSend(also_sent.data(), 2 * kCount, ncclInt32, next, comm, stream), ncclSuccess,
               "ncclSend");
  require_nccl(ncclRecv(also_received.data(), 2 * kCount, ncclInt32, last, comm, stream),
               ncclSuccess, "ncclRecv");
  require_nccl(ncclAllReduce(sum.data(), sum.data(), 1, ncclInt32, ncclSum, comm, stream),
               ncclSuccess, "ncclAllReduce");
  require_nccl(ncclGroupEnd(), ncclSuccess, "ncclGroupEnd");
  require(received.values()[kCount - 1] == 100 + last, "the ring's message");
  require(also_received.values()[kCount] == 200 + last, "the ring's second message");
  require(sum.values()[0] == rank.ranks(), "a collective of the same group");
  std::vector<int> own;
  for (int i = 0; i < rank.ranks(); ++i) {
    own.push_back(10 * rank.rank() + i);
  }
  DeviceArray<int> from(own);
  DeviceArray<int> to(own.size(), 0);
  require_nccl(ncclAlltoAll(from.data(), to.data(), 1, ncclInt32, comm, stream), ncclSuccess,
               "ncclAlltoAll");
  const auto got = to.values();
  for (int i = 0; i < rank.ranks(); ++i) {
    require(got[i] == 10 * i + rank.rank(), "all-to-all");
  }
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

/// A collective does not end before its peers come, and the caller is not held up.
void work_waits_for_peers(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(4, 1);
  if (rank.rank() == 0) {
    require_nccl(ncclAllReduce(array.data(), array.data(), 4, ncclFloat32, ncclSum, comm, stream),
                 ncclSuccess, "ncclAllReduce");
    for (int i = 0; i < 100; ++i) {
      require(cudaStreamQuery(stream) == cudaErrorNotReady, "it ends without a peer");
    }
    rank.reach(1);
  } else {
    rank.wait_for(0, 1);
    require_nccl(ncclAllReduce(array.data(), array.data(), 4, ncclFloat32, ncclSum, comm, stream),
                 ncclSuccess, "ncclAllReduce");
  }
  require(array.values()[0] == 2, "the sum");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

/// Calls on several streams run in the order of the calls, on all ranks.
void calls_keep_their_order(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream streams[3];
  DeviceArray<int> numbers(1, 1);
  DeviceArray<int> root(1, rank.rank());
  DeviceArray<int> last(1, 7);
  for (int round = 0; round < 20; ++round) {
    require_nccl(
        ncclAllReduce(numbers.data(), numbers.data(), 1, ncclInt32, ncclSum, comm, streams[0]),
        ncclSuccess, "ncclAllReduce");
    require_nccl(ncclBroadcast(root.data(), root.data(), 1, ncclInt32, 1, comm, streams[1]),
                 ncclSuccess, "ncclBroadcast");
    require_nccl(ncclReduce(last.data(), last.data(), 1, ncclInt32, ncclMax, 0, comm, streams[2]),
                 ncclSuccess, "ncclReduce");
  }
  // The host asks for the last stream first.
  streams[2].synchronize();
  streams[1].synchronize();
  require(root.values()[0] == 1 && numbers.values()[0] == 1 << 20, "the results");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

void captured_calls(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  const Stream side;
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  require_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "event");
  require_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "event");
  DeviceArray<int> first(1, 1);
  DeviceArray<int> second(1, rank.rank() + 1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  require_cuda(cudaEventRecord(fork, stream), "record");
  require_cuda(cudaStreamWaitEvent(side, fork, 0), "wait");
  // Two branches of one graph: the calls keep the order of the capture.
  require_nccl(ncclAllReduce(first.data(), first.data(), 1, ncclInt32, ncclSum, comm, stream),
               ncclSuccess, "ncclAllReduce");
  require_nccl(ncclAllReduce(second.data(), second.data(), 1, ncclInt32, ncclMax, comm, side),
               ncclSuccess, "ncclAllReduce");
  require_cuda(cudaEventRecord(join, side), "record");
  require_cuda(cudaStreamWaitEvent(stream, join, 0), "wait");
  require_cuda(cudaStreamEndCapture(stream, &graph), "end of the capture");
  require_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  require_cuda(cudaGraphDestroy(graph), "destroy the graph");
  require(first.values()[0] == 1, "nothing runs while it is captured");
  for (int launch = 0; launch < 10; ++launch) {
    require_cuda(cudaGraphLaunch(exec, stream), "launch");
    if (launch % 3 == 0) {  // calls outside of the graph take their turn too
      require_nccl(ncclAllReduce(first.data(), first.data(), 1, ncclInt32, ncclMax, comm, stream),
                   ncclSuccess, "ncclAllReduce");
    }
  }
  require(first.values()[0] == 1 << 10, "each launch sums");
  require(second.values()[0] == 2, "the other branch");
  require_cuda(cudaGraphExecDestroy(exec), "destroy");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

}  // namespace

int main() {
  setenv("FAKE_CUDA_DEVICES", "8", 1);
  check("sums ascend with the ranks and round at each", 4, sums_ascend);
  check("all kinds of collectives, in several parts", 3, all_kinds);
  check("operators: product, max, min, average, factors", 3, operators);
  check("messages and groups", 3, messages);
  check("a collective waits for its peers on the stream only", 2, work_waits_for_peers);
  check("calls on several streams keep their order", 2, calls_keep_their_order);
  check("captured calls run at each launch, in the capture's order", 2, captured_calls);
  return failures == 0 ? 0 : 1;
}
