// The records of ranks, as PyTorch's own analyser reads them.
#include <gtest/gtest.h>
#include <lockstep/collectives/core/flight_record.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "finished.h"

namespace lockstep {
namespace {

using detail::CollectiveCall;
using detail::CollectiveLog;
using detail::Verb;

/// Rank 1 has entered one all_reduce less than the others.
void write_records(const std::filesystem::path& prefix) {
  ::setenv("LOCKSTEP_FLIGHT_RECORD", prefix.c_str(), 1);
  for (int rank = 0; rank < 3; ++rank) {
    CollectiveLog log;
    for (const Verb verb : {Verb::broadcast, Verb::all_gather, Verb::reduce_scatter, Verb::barrier,
                            Verb::all_reduce}) {
      CollectiveCall call{verb, c10::ScalarType::Float};
      call.numel = 12;
      if (rank != 1 || verb != Verb::all_reduce) {
        log.issue(call);
        log.set_state(call.sequence, verb == Verb::all_reduce ? CollectiveLog::State::failed
                                                              : CollectiveLog::State::complete);
      }
    }
    detail::write_flight_record(log, rank, 3);
    detail::write_flight_record(CollectiveLog(), rank, 3);  // of a later failure: not kept
  }
  ::unsetenv("LOCKSTEP_FLIGHT_RECORD");
}

TEST(FlightRecord, PyTorchsAnalyserNamesTheRankThatIsMissing) {
  std::string folder = ::testing::TempDir() + "/flight-record-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  write_records(folder + "/rank_");
  const auto [code, output, time] =
      shell(std::string(LOCKSTEP_TEST_PYTHON) + " -m torch.distributed.flight_recorder.fr_trace " +
            folder + " --prefix rank_");
  EXPECT_EQ(code, 0) << output;
  EXPECT_NE(output.find("all_reduce"), std::string::npos) << output;
  EXPECT_NE(output.find("{1}"), std::string::npos) << output;
  EXPECT_EQ(output.find("broadcast"), std::string::npos) << output;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
