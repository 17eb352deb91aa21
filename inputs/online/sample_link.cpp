#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/inputs/sample_buffer.h>
#include <lockstep/inputs/sample_link.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

using detail::MpiComm;

enum Tag : int { kSample = 1, kEnd = 2 };

struct Message {
  detail::MpiRequest request = 0;
  std::vector<char> bytes;
};

/// Exchanged among all ranks at the start.
struct Role {
  int64_t trains;
  int64_t bytes;  // of a sample
};

/// A tensor of no elements may have no memory.
void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

struct SampleLink::Impl {
  Impl(MpiCommHandle handle, bool is_trainer, const std::vector<at::Tensor>& sample,
       const SampleLinkOptions& given)
      : options(given), trains(is_trainer) {
    LOCKSTEP_CHECK(options.in_flight() >= 1, "SampleLinkOptions: in_flight is ",
                   options.in_flight(), ", it must be at least 1");
    for (const at::Tensor& part : sample) {
      const std::string why = detail::why_not_plain(part);
      LOCKSTEP_CHECK(why.empty(), "SampleLink: part ", like.size(), " of a sample ", why);
      like.push_back(at::empty(part.sizes(), part.scalar_type()));
      bytes += part.nbytes();
    }
    comm = MpiComm::duplicate(detail::program_comm(handle));
    const Role mine{trains ? 1 : 0, static_cast<int64_t>(bytes)};
    std::vector<Role> all(static_cast<size_t>(comm.size()));
    comm.all_gather(&mine, sizeof mine, all.data());
    for (int rank = 0; rank < comm.size(); ++rank) {
      const Role& role = all[static_cast<size_t>(rank)];
      LOCKSTEP_CHECK(role.bytes == all[0].bytes, "SampleLink: a sample has ", all[0].bytes,
                     " bytes on rank 0 and ", role.bytes, " on rank ", rank);
      (role.trains != 0 ? trainers : simulators).push_back(rank);
    }
    LOCKSTEP_CHECK(bytes <= std::numeric_limits<int>::max(), "SampleLink: a sample has ", bytes,
                   " bytes; MPI sends less than 2 GiB at a time");
    LOCKSTEP_CHECK(!trainers.empty() && !simulators.empty(), "SampleLink: ", trainers.size(),
                   " ranks train and ", simulators.size(),
                   " simulate; there must be one of each, at least");
    taken.resize(simulators.size(), 0);
    ended.resize(simulators.size(), false);
    if (trains) {
      const auto place = std::find(trainers.begin(), trainers.end(), comm.rank());
      number = place - trainers.begin();
      received.resize(bytes);
      for (size_t i = 0; i < simulators.size(); ++i) {
        taken[i] = first_of(static_cast<int64_t>(i));
      }
    } else {
      number = std::find(simulators.begin(), simulators.end(), comm.rank()) - simulators.begin();
    }
  }

  int64_t trainer_count() const { return static_cast<int64_t>(trainers.size()); }

  /// The number of the first sample of simulating rank i for this training rank.
  int64_t first_of(int64_t i) const {
    const int64_t count = trainer_count();
    return ((number - i) % count + count) % count;
  }

  void require_simulating() const {
    LOCKSTEP_CHECK(!trains, "SampleLink: this rank trains; it calls receive()");
    LOCKSTEP_CHECK(!finished, "SampleLink: finish() was called; there are no more samples");
  }

  /// Drops messages that were received; different trainers may receive in any order.
  void drop_taken() {
    for (auto message = sent.begin(); message != sent.end();) {
      message = comm.test(message->request) ? sent.erase(message) : message + 1;
    }
  }

  void wait_for_first() {
    comm.wait(sent.front().request);
    sent.pop_front();
  }

  void post(const std::vector<at::Tensor>& sample) {
    LOCKSTEP_CHECK_CODE(sample.size() == like.size(), ExitCode::data, "SampleLink: a sample has ",
                        like.size(), " tensors, not ", sample.size());
    Message message;
    message.bytes.resize(bytes);
    size_t at = 0;
    for (size_t i = 0; i < like.size(); ++i) {
      const std::string why =
          sample[i].defined() ? detail::why_not_plain(sample[i]) : std::string();
      LOCKSTEP_CHECK_CODE(why.empty(), ExitCode::data, "SampleLink: part ", i, " of the sample ",
                          why);
      LOCKSTEP_CHECK_CODE(sample[i].defined() && sample[i].sizes() == like[i].sizes() &&
                              sample[i].scalar_type() == like[i].scalar_type(),
                          ExitCode::data, "SampleLink: part ", i, " of the sample is ",
                          sample[i].toString(), " ", sample[i].sizes(), "; expected ",
                          like[i].toString(), " ", like[i].sizes());
      const at::Tensor part = detail::applied(sample[i].detach()).cpu().contiguous();
      copy_bytes(message.bytes.data() + at, part.data_ptr(), part.nbytes());
      at += part.nbytes();
    }
    const int to = trainers[static_cast<size_t>((number + count++) % trainer_count())];
    sent.push_back(std::move(message));
    // Synchronous: complete only when received, even if small.
    comm.issend(sent.back().bytes.data(), static_cast<int>(bytes), to, kSample,
                sent.back().request);
  }

  void finish() {
    while (!sent.empty()) {
      wait_for_first();
    }
    for (const int trainer : trainers) {
      comm.send(nullptr, 0, trainer, kEnd);
    }
    finished = true;
  }

  /// The simulating rank whose sample comes next; -1 if all have finished.
  int64_t next_source() const {
    int64_t next = -1;
    for (size_t i = 0; i < simulators.size(); ++i) {
      if (!ended[i] && (next < 0 || taken[i] < taken[static_cast<size_t>(next)])) {
        next = static_cast<int64_t>(i);
      }
    }
    return next;
  }

  /// Receives the next sample or the end of the next source. Returns false if it has not arrived.
  bool take(size_t source, bool may_wait, SampleBuffer& buffer, int64_t& samples) {
    const int from = simulators[source];
    const auto message = may_wait ? comm.next_from(from) : comm.arrived(from);
    if (!message) {
      return false;
    }
    comm.receive(received.data(), static_cast<int>(bytes), from, message->tag);
    if (message->tag == kEnd) {
      ended[source] = true;
      return true;
    }
    size_t at = 0;
    for (const at::Tensor& part : like) {
      copy_bytes(part.data_ptr(), received.data() + at, part.nbytes());
      at += part.nbytes();
    }
    buffer.push(like);
    taken[source] += trainer_count();
    ++samples;
    return true;
  }

  int64_t receive(SampleBuffer& buffer, int64_t most, bool may_wait) {
    LOCKSTEP_CHECK(trains, "SampleLink: this rank simulates; it calls send()");
    int64_t samples = 0;
    while (samples < most) {
      const int64_t source = next_source();
      if (source < 0 || !take(static_cast<size_t>(source), may_wait, buffer, samples)) {
        break;
      }
    }
    return samples;
  }

  SampleLinkOptions options;
  bool trains;
  std::vector<at::Tensor> like;
  size_t bytes = 0;
  MpiComm comm;
  std::vector<int> simulators, trainers;  // ranks of comm
  int64_t number = 0;                     // of this rank among the simulating or training ranks

  std::deque<Message> sent;  // pending samples of a simulating rank
  int64_t count = 0;         // samples sent
  bool finished = false;

  std::vector<char> received;
  std::vector<int64_t> taken;  // by source: number of its next sample for this rank
  std::vector<bool> ended;
};

SampleLink::SampleLink(MpiCommHandle comm, bool trains, const std::vector<at::Tensor>& like,
                       const SampleLinkOptions& options)
    : impl_(std::make_unique<Impl>(comm, trains, like, options)) {}

SampleLink::~SampleLink() {
  if (!impl_->sent.empty()) {
    // MPI still reads the memory of pending samples.
    new std::deque<Message>(std::move(impl_->sent));
  }
}

void SampleLink::send(const std::vector<at::Tensor>& sample) {
  impl_->require_simulating();
  impl_->drop_taken();
  while (static_cast<int64_t>(impl_->sent.size()) >= impl_->options.in_flight()) {
    impl_->wait_for_first();
  }
  impl_->post(sample);
}

bool SampleLink::try_send(const std::vector<at::Tensor>& sample) {
  impl_->require_simulating();
  if (waiting() >= impl_->options.in_flight()) {
    return false;
  }
  impl_->post(sample);
  return true;
}

int64_t SampleLink::waiting() {
  impl_->drop_taken();
  return static_cast<int64_t>(impl_->sent.size());
}

void SampleLink::finish() {
  impl_->require_simulating();
  impl_->finish();
}

int64_t SampleLink::receive(SampleBuffer& buffer, int64_t count) {
  return impl_->receive(buffer, count, /*may_wait=*/true);
}

int64_t SampleLink::receive_arrived(SampleBuffer& buffer, int64_t count) {
  return impl_->receive(buffer, count, /*may_wait=*/false);
}

}  // namespace lockstep
