#include <lockstep/collectives/mpi/mpi_signs.h>

#include <iterator>

namespace lockstep::detail {

MpiSigns::MpiSigns(const MpiComm& all, const NodeLayout& layout)
    : comm_(MpiComm::duplicate(all.get())) {
  for (size_t node = 0; node < layout.nodes.size(); ++node) {
    if (static_cast<int>(node) != layout.own_node) {
      others_.insert(others_.end(), layout.nodes[node].begin(), layout.nodes[node].end());
    }
  }
}

MpiSigns::~MpiSigns() {
  if (!sent_.empty()) {
    new std::list<Message>(std::move(sent_));
  }
}

void MpiSigns::tell(const std::string& text) {
  for (int rank : others_) {
    sent_.push_back({text, MPI_REQUEST_NULL});
    Message& message = sent_.back();
    comm_.check(MPI_Isend(message.text.data(), static_cast<int>(message.text.size()), MPI_BYTE,
                          rank, /*tag=*/0, comm_.get(), &message.request),
                "MPI_Isend");
  }
}

bool MpiSigns::progress() {
  for (auto message = sent_.begin(); message != sent_.end();) {
    int complete = 0;
    comm_.check(MPI_Test(&message->request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    message = complete != 0 ? sent_.erase(message) : std::next(message);
  }
  return sent_.empty();
}

std::vector<std::pair<int, std::string>> MpiSigns::heard() {
  std::vector<std::pair<int, std::string>> messages;
  for (;;) {
    int found = 0;
    MPI_Status status;
    comm_.check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &found, &status),
                "MPI_Iprobe");
    if (found == 0) {
      return messages;
    }
    int bytes = 0;
    comm_.check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::string text(static_cast<size_t>(bytes), '\0');
    comm_.check(MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                         comm_.get(), MPI_STATUS_IGNORE),
                "MPI_Recv");
    messages.emplace_back(status.MPI_SOURCE, std::move(text));
  }
}

}  // namespace lockstep::detail
