#pragma once

#include <lockstep/collectives/impl/collective_log.h>

#include <string>

namespace lockstep::detail {

/// The calls of a log in the form of PyTorch's flight recorder, version 2.10. The text is JSON in a
/// pickle that does nothing but call json.loads, because PyTorch's analyser reads pickles:
///   python -m torch.distributed.flight_recorder.fr_trace FOLDER --prefix NAME
std::string render_flight_record(const CollectiveLog& log, int size);

/// Writes the record to PREFIX<rank> if the environment variable LOCKSTEP_FLIGHT_RECORD is a
/// PREFIX. Called when a communicator fails; the first file of a rank is kept. Threads: any.
void write_flight_record(const CollectiveLog& log, int rank, int size) noexcept;

}  // namespace lockstep::detail
