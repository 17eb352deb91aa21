#pragma once

#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Short messages that a rank in trouble sends to the ranks of other nodes. They arrive while the
/// receiver waits, too. Threads: as the communicator. Ranks: construction is collective.
class MpiSigns {
 public:
  MpiSigns(const MpiComm& all, const NodeLayout& layout);
  /// Messages that have not left stay in memory for ever: MPI may still read them.
  ~MpiSigns();
  MpiSigns(const MpiSigns&) = delete;
  MpiSigns& operator=(const MpiSigns&) = delete;

  /// Sends `text` to every rank of the other nodes, without waiting.
  void tell(const std::string& text);
  /// Moves messages on. True once all that were sent have left.
  bool progress();
  /// The messages that have arrived, with their senders.
  std::vector<std::pair<int, std::string>> heard();

 private:
  struct Message {
    std::string text;
    MPI_Request request;
  };

  MpiComm comm_;
  std::vector<int> others_;
  std::list<Message> sent_;
};

}  // namespace lockstep::detail
