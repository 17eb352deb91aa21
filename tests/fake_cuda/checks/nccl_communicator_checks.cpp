/// Checks of the fake NCCL: how communicators are made, split and refused.
#include <memory>
#include <string>
#include <vector>

#include "nccl_ranks.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  return config;
}

void calls_that_do_not_block(Rank& rank) {
  ncclConfig_t config = non_blocking();
  ncclComm_t comm = nullptr;
  if (rank.rank() == 1) {
    rank.wait_for(0, 1);
  }
  require_nccl(ncclCommInitRankConfig(&comm, 2, rank.unique_id(), rank.rank(), &config),
               ncclInProgress, "ncclCommInitRankConfig");
  if (rank.rank() == 0) {
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 100; ++i) {
      require_nccl(ncclCommGetAsyncError(comm, &state), ncclSuccess, "ncclCommGetAsyncError");
      require_nccl(state, ncclInProgress, "rank 1 has not come");
    }
    rank.reach(1);
  }
  require_nccl(settled(comm), ncclSuccess, "the communicator");
  const Stream stream;
  DeviceArray<float> array(4, 1);
  require_nccl(ncclAllReduce(array.data(), array.data(), 4, ncclFloat32, ncclSum, comm, stream),
               ncclInProgress, "ncclAllReduce");
  require_nccl(ncclAllReduce(array.data(), array.data(), 4, ncclFloat32, ncclSum, comm, stream),
               ncclInvalidArgument, "a call before the last one has ended");
  require_nccl(settled(comm), ncclSuccess, "the collective");
  require(array.values()[3] == 2, "the sum");
  ncclComm_t part = nullptr;
  if (rank.rank() == 0) {  // seen on an H100: success before the other rank has come
    require_nccl(ncclCommSplit(comm, 0, -rank.rank(), &part, &config), ncclSuccess,
                 "ncclCommSplit");
    require(part == nullptr, "the part's handle comes with the state");
    rank.reach(2);
  } else {
    rank.wait_for(0, 2);
    require_nccl(ncclCommSplit(comm, 0, -rank.rank(), &part, &config), ncclSuccess,
                 "ncclCommSplit");
  }
  require_nccl(settled(comm), ncclSuccess, "the split");
  require_nccl(settled(part), ncclSuccess, "the part");
  int number = -1;
  require_nccl(ncclCommUserRank(part, &number), ncclSuccess, "ncclCommUserRank");
  require(number == 1 - rank.rank(), "the keys give the order of the part");
  for (const ncclComm_t one : {part, comm}) {
    require_nccl(ncclCommFinalize(one), ncclInProgress, "ncclCommFinalize");
    require_nccl(settled(one), ncclSuccess, "finalized");
    require_nccl(ncclCommDestroy(one), ncclSuccess, "ncclCommDestroy");
  }
}

void splits(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  const int color = rank.rank() == 3 ? NCCL_SPLIT_NOCOLOR : rank.rank() % 2;
  ncclComm_t part = nullptr;
  require_nccl(ncclCommSplit(comm, color, 0, &part, nullptr), ncclSuccess, "ncclCommSplit");
  require((part == nullptr) == (color < 0), "no color, no part");
  ncclComm_t again = nullptr;
  require_nccl(ncclCommSplit(comm, 5, rank.ranks() - rank.rank(), &again, nullptr), ncclSuccess,
               "the second split");
  DeviceArray<int> numbers(1, 1 << rank.rank());
  if (part != nullptr) {
    require_nccl(ncclAllReduce(numbers.data(), numbers.data(), 1, ncclInt32, ncclSum, part, stream),
                 ncclSuccess, "ncclAllReduce");
    require(numbers.values()[0] == (color == 0 ? 0b10101 : 0b00010), "who is in the part");
    require_nccl(ncclCommDestroy(part), ncclSuccess, "ncclCommDestroy");
  }
  DeviceArray<int> own(1, rank.rank());
  DeviceArray<int> all(5, -1);
  require_nccl(ncclAllGather(own.data(), all.data(), 1, ncclInt32, again, stream), ncclSuccess,
               "ncclAllGather");
  require(all.values() == std::vector<int>({4, 3, 2, 1, 0}), "the order of the keys");
  require_nccl(ncclCommDestroy(again), ncclSuccess, "ncclCommDestroy");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
}

/// Three ranks of one process: their calls are in a group, since each waits for the others.
void one_process(Rank&) {
  ncclComm_t comms[3] = {};
  require_nccl(ncclCommInitAll(comms, 3, nullptr), ncclSuccess, "ncclCommInitAll");
  std::vector<std::unique_ptr<DeviceArray<int>>> arrays;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int device = 0; device < 3; ++device) {
    require_cuda(cudaSetDevice(device), "cudaSetDevice");
    arrays.push_back(std::make_unique<DeviceArray<int>>(1, 1 << device));
    streams.push_back(std::make_unique<Stream>());
  }
  require_nccl(ncclGroupStart(), ncclSuccess, "ncclGroupStart");
  for (int rank = 0; rank < 3; ++rank) {
    int* data = arrays[rank]->data();
    require_nccl(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comms[rank], *streams[rank]),
                 ncclSuccess, "ncclAllReduce");
  }
  require_nccl(ncclGroupEnd(), ncclSuccess, "ncclGroupEnd");
  for (int rank = 0; rank < 3; ++rank) {
    streams[rank]->synchronize();
    require_cuda(cudaSetDevice(rank), "cudaSetDevice");
    require(arrays[rank]->values()[0] == 7, "the sum of rank " + std::to_string(rank));
  }
  require_nccl(ncclAllReduce(arrays[0]->data(), arrays[0]->data(), 1, ncclInt32, ncclSum, comms[0],
                             *streams[1]),
               ncclUnhandledCudaError, "a stream of another device");
  for (const ncclComm_t comm : comms) {
    require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
  }
}

void wrong_arguments(Rank& rank) {
  const ncclComm_t comm = rank.communicator();
  const Stream stream;
  DeviceArray<float> array(4, 1);
  float* data = array.data();
  require_nccl(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, nullptr, stream),
               ncclInvalidArgument, "no communicator");
  require_nccl(ncclAllReduce(nullptr, data, 4, ncclFloat32, ncclSum, comm, stream),
               ncclInvalidArgument, "no input");
  require_nccl(ncclAllReduce(data, data, 4, ncclNumTypes, ncclSum, comm, stream),
               ncclInvalidArgument, "no type");
  require_nccl(ncclAllReduce(data, data, 4, ncclFloat32, static_cast<ncclRedOp_t>(9), comm, stream),
               ncclInvalidArgument, "no operator");
  require_nccl(ncclBroadcast(data, data, 4, ncclFloat32, 1, comm, stream), ncclInvalidArgument,
               "no such root");
  require_nccl(ncclSend(data, 4, ncclFloat32, -1, comm, stream), ncclInvalidArgument,
               "no such peer");
  require_nccl(ncclAllReduce(data, data, 0, ncclFloat32, ncclSum, comm, stream), ncclSuccess,
               "nothing to do");
  ncclComm_t part = nullptr;
  require_nccl(ncclCommSplit(comm, -7, 0, &part, nullptr), ncclInvalidArgument, "a negative color");
  ncclConfig_t config{};
  require_nccl(ncclCommInitRankConfig(&part, 1, rank.unique_id(), 0, &config), ncclInvalidArgument,
               "a configuration that nobody initialized");
  require_nccl(ncclGroupEnd(), ncclInvalidUsage, "an end without a start");
  void* token = nullptr;
  require_nccl(ncclCommRegister(comm, data, 16, &token), ncclSuccess, "ncclCommRegister");
  require_nccl(ncclCommDeregister(comm, token), ncclSuccess, "ncclCommDeregister");
  require_nccl(ncclCommDeregister(comm, token), ncclInvalidArgument, "given back twice");
  void* memory = nullptr;
  require_nccl(ncclMemAlloc(&memory, 100), ncclSuccess, "ncclMemAlloc");
  require_nccl(ncclMemFree(memory), ncclSuccess, "ncclMemFree");
  require_nccl(ncclCommDestroy(comm), ncclSuccess, "ncclCommDestroy");
  require_nccl(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comm, stream),
               ncclInvalidArgument, "a communicator that was destroyed");
  int version = 0;
  require_nccl(ncclGetVersion(&version), ncclSuccess, "ncclGetVersion");
  require(version == NCCL_VERSION_CODE, "the version");
}

}  // namespace

int main() {
  setenv("FAKE_CUDA_DEVICES", "8", 1);
  check("communicators that do not block", 2, calls_that_do_not_block);
  check("splits, also without a color", 5, splits);
  check("one process with several devices", 1, one_process);
  check("wrong arguments are refused", 1, wrong_arguments);
  return failures == 0 ? 0 : 1;
}
