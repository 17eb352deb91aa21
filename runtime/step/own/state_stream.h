#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <lockstep/amp/impl/flat_span.h>

#include <array>
#include <vector>

namespace lockstep::detail {

/// Masters, remainders, averages and moments that stay in host memory while the weights are on a
/// device (TrainerOptions::offload_states). For each update they travel bucket by bucket to one of
/// two places on the device and back, on two streams beside the one that computes: while a bucket
/// is updated, the next one arrives and the last one leaves.
/// Threads: the one that computes.
class StateStream {
 public:
  /// The spans that will travel. Their arrays in host memory are page-locked.
  StateStream(const std::vector<amp::FlatSpan>& spans, c10::Device device);

  /// `home` with copies on the device in place of its arrays in host memory, for work of the
  /// current stream until give_back().
  const amp::FlatSpan& fetch(const amp::FlatSpan& home);
  /// Copies what the current stream's work has made of the last fetch() to the arrays it came from.
  void give_back();
  /// Waits until host memory has all that was given back: the host may read it then.
  void finish() const;

 private:
  struct Place {
    explicit Place(c10::Device device)
        : arrived(device.type()), updated(device.type()), left(device.type()) {}
    at::Tensor bytes;
    c10::Event arrived, updated, left;
  };
  c10::Stream current() const;

  c10::Device device_;
  c10::Stream arriving_;
  c10::Stream leaving_;
  std::array<Place, 2> places_;
  size_t place_ = 0;  // of the last fetch()
  amp::FlatSpan home_;
  amp::FlatSpan fetched_;
};

}  // namespace lockstep::detail
