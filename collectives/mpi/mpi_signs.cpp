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
    sent_.push_back({text});
    Message& message = sent_.back();
    comm_.isend(message.text.data(), static_cast<int>(message.text.size()), rank, /*tag=*/0,
                message.request);
  }
}

bool MpiSigns::progress() {
  for (auto message = sent_.begin(); message != sent_.end();) {
    message = comm_.test(message->request) ? sent_.erase(message) : std::next(message);
  }
  return sent_.empty();
}

std::vector<std::pair<int, std::string>> MpiSigns::heard() {
  std::vector<std::pair<int, std::string>> messages;
  while (const auto message = comm_.arrived()) {
    std::string text(static_cast<size_t>(message->bytes), '\0');
    comm_.receive(text.data(), message->bytes, message->source, message->tag);
    messages.emplace_back(message->source, std::move(text));
  }
  return messages;
}

}  // namespace lockstep::detail
