#pragma once

#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/mpi/node_layout.h>

#include <list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Short messages between nodes about ranks that are late or leave. A rank that waits in a
/// collective gets them, too. Threads: as the communicator. Ranks: construction is collective.
class MpiSigns {
 public:
  MpiSigns(const MpiComm& all, const NodeLayout& layout);
  /// Leaks messages that are not sent yet: MPI may still read them.
  ~MpiSigns();
  MpiSigns(const MpiSigns&) = delete;
  MpiSigns& operator=(const MpiSigns&) = delete;

  /// Sends `text` to every rank of the other nodes, without waiting.
  void tell(const std::string& text);
  /// Advances the messages. True once all have been sent.
  bool progress();
  /// The messages that have arrived: (sender, text).
  std::vector<std::pair<int, std::string>> heard();

 private:
  struct Message {
    std::string text;
    MpiRequest request = 0;
  };

  MpiComm comm_;
  std::vector<int> others_;
  std::list<Message> sent_;
};

}  // namespace lockstep::detail
