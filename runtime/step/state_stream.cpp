#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/impl/side_streams.h>
#include <lockstep/runtime/step/own/state_stream.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// The arrays that may be in host memory.
std::vector<at::Tensor*> states_of(amp::FlatSpan& span) {
  std::vector<at::Tensor*> states = {&span.master, &span.remainder, &span.average};
  for (at::Tensor& moment : span.moments) {
    states.push_back(&moment);
  }
  return states;
}

bool is_at_home(const at::Tensor& state) {
  return state.defined() && state.is_cpu();
}

/// Kernels read 16 bytes at a time.
int64_t room_of(const at::Tensor& state) {
  constexpr int64_t kAlignment = 256;
  return (static_cast<int64_t>(state.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t bytes_of(amp::FlatSpan span) {
  int64_t bytes = 0;
  for (const at::Tensor* state : states_of(span)) {
    bytes += is_at_home(*state) ? room_of(*state) : 0;
  }
  return bytes;
}

c10::Stream arriving_on(c10::Device device) {
  static SideStreams streams;
  return streams.of(device);
}

c10::Stream leaving_on(c10::Device device) {
  static SideStreams streams;
  return streams.of(device);
}

}  // namespace

StateStream::StateStream(const std::vector<amp::FlatSpan>& spans, c10::Device device)
    : device_(device),
      arriving_(arriving_on(device)),
      leaving_(leaving_on(device)),
      places_{Place(device), Place(device)} {
  int64_t bytes = 0;
  for (const amp::FlatSpan& span : spans) {
    bytes = std::max(bytes, bytes_of(span));
  }
  for (Place& place : places_) {
    place.bytes = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    place.left.record(current());  // earlier work may use the same memory
  }
}

c10::Stream StateStream::current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

const amp::FlatSpan& StateStream::fetch(const amp::FlatSpan& home) {
  place_ = (place_ + 1) % places_.size();
  Place& place = places_[place_];
  home_ = home;
  fetched_ = home;
  place.left.block(arriving_);
  int64_t begin = 0;
  {
    const c10::StreamGuard on_stream(arriving_);
    for (at::Tensor* state : states_of(fetched_)) {
      if (is_at_home(*state)) {
        const at::Tensor copy = place.bytes.narrow(0, begin, static_cast<int64_t>(state->nbytes()))
                                    .view(state->scalar_type());
        begin += room_of(*state);
        copy.copy_(*state, /*non_blocking=*/true);
        *state = copy;
      }
    }
    place.arrived.record(arriving_);
  }
  place.arrived.block(current());
  return fetched_;
}

void StateStream::give_back() {
  Place& place = places_[place_];
  place.updated.record(current());
  place.updated.block(leaving_);
  const std::vector<at::Tensor*> states = states_of(home_);
  const std::vector<at::Tensor*> copies = states_of(fetched_);
  const c10::StreamGuard on_stream(leaving_);
  for (size_t i = 0; i < states.size(); ++i) {
    if (is_at_home(*states[i])) {
      states[i]->copy_(*copies[i], /*non_blocking=*/true);
    }
  }
  place.left.record(leaving_);
}

void StateStream::finish() const {
  leaving_.synchronize();
}

}  // namespace lockstep::detail
