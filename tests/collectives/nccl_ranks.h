#pragma once

#include "fake_device.h"
#include "fake_nccl.h"
#include "thread_ranks.h"

#include <lockstep/collectives/nccl/nccl_transport.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::testing {

using namespace detail;

/// What a test gives each rank.
struct NcclCase {
  int ranks = 2;
  std::function<void(int rank, FakeNccl::Script&)> script = [](int, FakeNccl::Script&) {};
  std::function<std::string(int rank)> device_id = [](int rank) {
    return "GPU-" + std::to_string(rank);
  };
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  std::chrono::milliseconds abort_deadline = std::chrono::seconds(20);
  CollectiveCheck check = CollectiveCheck::on;
  int ranks_per_id = 128;
};

/// One rank with a fake device and a fake NCCL.
struct NcclRank {
  NcclRank(const NcclCase& test, const std::shared_ptr<FakeNcclWorld>& world,
           const Communicator& host)
      : host(host),
        lane(std::make_shared<FakeLane>(current)),
        nccl(std::make_shared<FakeNccl>(world, script_of(test, host.rank()))),
        parts_{nccl,
               lane,
               host,
               test.device_id(host.rank()),
               {test.timeout, test.check},
               test.abort_deadline,
               std::chrono::milliseconds(1),
               test.ranks_per_id,
               [failures = failures] { ++*failures; }} {}
  ~NcclRank() { EXPECT_EQ(nccl->misuse(), std::vector<std::string>{}); }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  /// Not in the constructor, so that a test sees what a failed start leaves.
  Communicator start() const { return Communicator(make_nccl_transport(parts_)); }

  int rank() const { return host.rank(); }
  /// What the device has computed when all that was put on it is done.
  at::Tensor read(const at::Tensor& tensor) {
    current.finish();
    return bytes_of_device(tensor).clone();
  }

  Communicator host;
  FakeStream current;
  std::shared_ptr<FakeLane> lane;
  std::shared_ptr<FakeNccl> nccl;
  std::shared_ptr<std::atomic<int>> failures = std::make_shared<std::atomic<int>>(0);

 private:
  static FakeNccl::Script script_of(const NcclCase& test, int rank) {
    FakeNccl::Script script;
    test.script(rank, script);
    return script;
  }
  NcclParts parts_;
};

inline std::vector<RankOutcome> nccl_outcomes(
    const NcclCase& test, const std::function<void(NcclRank&, Communicator&)>& body) {
  const auto world = make_fake_nccl_world();
  return outcomes(test.ranks, [&](Communicator& host) {
    NcclRank rank(test, world, host);
    Communicator nccl = rank.start();
    body(rank, nccl);
  });
}

/// For bodies that must not throw.
inline void run_nccl(const NcclCase& test,
                     const std::function<void(NcclRank&, Communicator&)>& body) {
  const std::vector<RankOutcome> result = nccl_outcomes(test, body);
  for (size_t k = 0; k < result.size(); ++k) {
    EXPECT_EQ(result[k].kind, RankOutcome::Kind::returned)
        << "rank " << k << ": " << result[k].message;
  }
}

}  // namespace lockstep::testing
