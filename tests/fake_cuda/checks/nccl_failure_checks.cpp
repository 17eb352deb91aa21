/// Checks of the fake NCCL when something goes wrong: each ends with an error on all ranks that are
/// left, and none waits for ever.
#include <future>

#include "nccl_ranks.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

ncclResult_t sum(ncclComm_t comm, cudaStream_t stream, DeviceArray<float>& array, size_t count) {
  return ncclAllReduce(array.data(), array.data(), count, ncclFloat32, ncclSum, comm, stream);
}

/// Aborts, and then the stream is free again and CUDA has no error.
void abort_and_go_on(ncclComm_t comm, const Stream& stream) {
  require_nccl(ncclCommAbort(comm), ncclSuccess, "ncclCommAbort");
  cudaGetLastError();  // a query may have said that the work was not done
  stream.synchronize();
  require_cuda(cudaGetLastError(), "after the abort");
}

void different_calls(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "the same call");
  if (rank.rank() == 1) {
    require_nccl(ncclBroadcast(array.data(), array.data(), 4, ncclFloat32, 0, comm, stream),
                 ncclSuccess, "ncclBroadcast");
  } else {
    require_nccl(sum(comm, stream, array, 5), ncclSuccess, "ncclAllReduce");
  }
  const ncclResult_t error = error_of(comm);
  require(error == ncclInvalidUsage || error == ncclRemoteError, "the kind of error");
  const std::string text = ncclGetLastError(comm);
  require(has(text, "ncclAllReduce of 5 float32, sum") &&
              has(text, "ncclBroadcast of 4 float32, root 0"),
          "the text names both calls: " + text);
  require(cudaStreamQuery(stream) == cudaErrorNotReady, "the work stays until the abort");
  require(sum(comm, stream, array, 8) == error, "later calls get the error");
  abort_and_go_on(comm, stream);
  require(array.values()[0] != array.values()[0], "what was aborted is NaN");
}

void different_counts(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  require_nccl(sum(comm, stream, array, 4 + rank.rank()), ncclSuccess, "ncclAllReduce");
  error_of(comm);
  const std::string text = ncclGetLastError(comm);
  require(has(text, "of 4 float32") && has(text, "of 5 float32"), "both counts: " + text);
  abort_and_go_on(comm, stream);
}

void different_messages(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  if (rank.rank() == 0) {
    require_nccl(ncclSend(array.data(), 3, ncclFloat32, 1, comm, stream), ncclSuccess, "ncclSend");
    rank.wait_for(1, 1);
  } else {
    require_nccl(ncclRecv(array.data(), 4, ncclFloat32, 0, comm, stream), ncclSuccess, "ncclRecv");
    require_nccl(error_of(comm), ncclInvalidUsage, "the receiver");
    require(has(ncclGetLastError(comm), "sends 3 float32, but rank 1 receives 4 float32"),
            "the text names both counts");
    rank.reach(1);
  }
  abort_and_go_on(comm, stream);
}

void different_numbers_of_ranks(Rank& rank) {
  const ncclUniqueId id = rank.unique_id();
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, rank.rank() == 0 ? 1 : 2, id, rank.rank());
  // Rank 0 is content with itself.
  require((result == ncclSuccess) == (rank.rank() == 0), "the result");
  require(rank.rank() == 0 || comm == nullptr, "no communicator");
}

void one_device_twice(Rank& rank) {
  require_cuda(cudaSetDevice(rank.rank() == 2 ? 0 : rank.rank()), "cudaSetDevice");
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, 3, rank.unique_id(), rank.rank());
  require(result == ncclInvalidUsage || result == ncclRemoteError, "it is refused");
  require(comm == nullptr, "no communicator");
  const std::string text = ncclGetLastError(nullptr);
  require(has(text, "Duplicate GPU detected : rank 0 and rank 2"), "the text: " + text);
}

void one_device_shared(Rank& rank) {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  require_cuda(cudaSetDevice(0), "cudaSetDevice");
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  require(array.values()[0] == 2, "the sum");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

void peer_is_killed(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  stream.synchronize();
  rank.meet(1);
  if (rank.rank() == 1) {
    raise(SIGKILL);
  }
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  require_nccl(error_of(comm), ncclRemoteError, "the communicator");
  require(has(ncclGetLastError(comm), "remote process exited"), "NCCL's words");
  require(has(ncclGetLastError(comm), "rank 1"), "who has gone");
  abort_and_go_on(comm, stream);
}

void peer_is_killed_before_it_comes(Rank& rank) {
  const ncclUniqueId id = rank.unique_id();
  rank.meet(1);
  if (rank.rank() == 0) {
    raise(SIGKILL);
  }
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, 3, id, rank.rank());
  // The second: another rank has found it and forgotten the id before this one came.
  require(result == ncclRemoteError || result == ncclSystemError, "ncclCommInitRank");
}

void peer_is_killed_in_a_split(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  rank.meet(1);
  if (rank.rank() == 2) {
    raise(SIGKILL);
  }
  ncclComm_t part = nullptr;
  require_nccl(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclRemoteError, "ncclCommSplit");
  require(part == nullptr, "no part");
  require_nccl(ncclCommAbort(comm), ncclSuccess, "ncclCommAbort");
}

void peer_destroys(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  if (rank.rank() == 1) {
    require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
    rank.reach(1);
    rank.wait_for(0, 1);  // its process lives
    return;
  }
  rank.wait_for(1, 1);
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  require_nccl(error_of(comm), ncclRemoteError, "the communicator");
  require(has(ncclGetLastError(comm), "rank 1 has destroyed the communicator"), "the text");
  abort_and_go_on(comm, stream);
  rank.reach(1);
}

void peer_aborts(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  if (rank.rank() != 0) {
    require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
    rank.reach(1);
    require_nccl(error_of(comm), ncclRemoteError, "the communicator");
    require(has(ncclGetLastError(comm), "rank 0 says: the communicator was aborted"), "the text");
  } else {
    rank.wait_for(1, 1);
    rank.wait_for(2, 1);
  }
  abort_and_go_on(comm, stream);
}

/// As lockstep does it: calls that do not block, an abort while one waits.
void abort_ends_a_call_that_waits(Rank& rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = rank.unique_id();
  require_nccl(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress, "init");
  require_nccl(ncclCommAbort(comm), ncclSuccess, "ncclCommAbort");
  // Who comes later finds nobody.
  require_nccl(ncclCommInitRank(&comm, 2, id, 1), ncclSystemError, "a rank that comes too late");
}

void abort_waits_for_graphs(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  require_cuda(cudaStreamEndCapture(stream, &graph), "end of the capture");
  require_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  require_cuda(cudaGraphDestroy(graph), "destroy the graph");
  if (rank.rank() == 0) {
    require_cuda(cudaGraphLaunch(exec, stream), "launch");  // its peer never launches
  }
  auto aborted = std::async(std::launch::async, [comm] { return ncclCommAbort(comm); });
  stream.synchronize();
  require(aborted.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout,
          "the abort returns though a graph has a call");
  require_cuda(cudaGraphExecDestroy(exec), "destroy");
  require_nccl(aborted.get(), ncclSuccess, "ncclCommAbort");
}

void parts_that_share_end_together(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 1;
  ncclComm_t part = nullptr;
  require_nccl(ncclCommSplit(comm, 0, 0, &part, &config), ncclSuccess, "ncclCommSplit");
  DeviceArray<float> array(8, 1);
  if (rank.rank() == 0) {
    require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  }
  require_nccl(ncclCommAbort(part), ncclSuccess, "ncclCommAbort");
  stream.synchronize();
  require(error_of(comm) == ncclInvalidUsage || error_of(comm) == ncclRemoteError, "the whole");
  require_nccl(ncclCommAbort(comm), ncclSuccess, "ncclCommAbort");
}

void nobody_aborts(Rank& rank) {
  setenv("FAKE_CUDA_NCCL_PATIENCE_MS", "20", 1);
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  require_nccl(sum(comm, stream, array, 4 + rank.rank()), ncclSuccess, "ncclAllReduce");
  require(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure, "the wait ends with an error");
}

void planted_fault(Rank& rank) {
  if (rank.rank() == 1) {
    setenv("FAKE_CUDA_FAIL_COLLECTIVE", "2", 1);
  }
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  for (int i = 0; i < 2; ++i) {
    require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
    stream.synchronize();
  }
  require_nccl(sum(comm, stream, array, 8), ncclSuccess, "ncclAllReduce");
  require_nccl(error_of(comm), rank.rank() == 1 ? ncclSystemError : ncclRemoteError,
               "the third collective");
  abort_and_go_on(comm, stream);
}

/// A wrong address is a fault of the device, as everywhere.
void wrong_address(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(8, 1);
  require_nccl(sum(comm, stream, array, 1 << 20), ncclSuccess, "ncclAllReduce");
  require(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress, "beyond the allocation");
}

void finalize_waits(Rank& rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  require_nccl(ncclCommInitRankConfig(&comm, 2, rank.unique_id(), rank.rank(), &config),
               ncclInProgress, "init");
  require_nccl(settled(comm), ncclSuccess, "init");
  const Stream stream;
  DeviceArray<float> array(8, 1);
  if (rank.rank() == 1) {
    rank.wait_for(0, 1);
  }
  require_nccl(sum(comm, stream, array, 8), ncclInProgress, "ncclAllReduce");
  require_nccl(settled(comm), ncclSuccess, "ncclAllReduce");
  require_nccl(ncclCommFinalize(comm), ncclInProgress, "ncclCommFinalize");
  if (rank.rank() == 0) {
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 100; ++i) {
      require_nccl(ncclCommGetAsyncError(comm, &state), ncclSuccess, "ncclCommGetAsyncError");
      require_nccl(state, ncclInProgress, "a collective waits for its peer");
    }
    rank.reach(1);
  }
  require_nccl(settled(comm), ncclSuccess, "finalized");
  require_nccl(sum(comm, stream, array, 8), ncclInvalidArgument, "a call after that");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
  require(array.values()[0] == 2, "the sum");
}

/// Of this program's ranks, also the killed ones, nothing is left in /dev/shm.
void nothing_is_left(Rank& rank) {
  rank.unique_id();  // removes what killed ranks have left
  const std::string command =
      "for f in /dev/shm/fake_nccl_*; do p=${f#*nccl_}; p=${p%%_*}; "
      "[ -e $f ] && ! [ -e /proc/$p ] && exit 1; done; exit 0";
  require(std::system(command.c_str()) == 0, "memory of a process that has ended");
}

}  // namespace

int main() {
  setenv("FAKE_CUDA_DEVICES", "8", 1);
  check("different calls are named on all ranks", 2, different_calls);
  check("different counts are named on all ranks", 3, different_counts);
  check("different messages are named", 2, different_messages);
  check("ranks that were told of different numbers", 2, different_numbers_of_ranks);
  check("one device for two ranks is refused", 3, one_device_twice);
  check("... unless NCCL_MULTI_RANK_GPU_ENABLE=1", 2, one_device_shared);
  check("a peer is killed before a collective", 3, peer_is_killed, {1});
  check("the maker of the id is killed before it comes", 3, peer_is_killed_before_it_comes, {0});
  check("a peer is killed before a split", 3, peer_is_killed_in_a_split, {2});
  check("a peer has destroyed its communicator", 2, peer_destroys);
  check("a peer aborts", 3, peer_aborts);
  check("an abort ends a call that waits", 1, abort_ends_a_call_that_waits);
  check("an abort waits for graphs", 2, abort_waits_for_graphs);
  check("parts that share buffers end together", 2, parts_that_share_end_together);
  check("an error that nobody answers ends as the device's", 2, nobody_aborts);
  check("a planted fault", 2, planted_fault);
  check("a wrong address", 2, wrong_address);
  check("finalize waits for collectives", 2, finalize_waits);
  check("nothing is left behind", 1, nothing_is_left);
  return failures == 0 ? 0 : 1;
}
