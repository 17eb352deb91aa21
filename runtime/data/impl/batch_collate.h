#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/batch.h>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::data {
template <typename Data, typename Target>
struct Example;
}

namespace lockstep::detail {

template <typename Sample, typename = void>
struct HasOwnCollate : std::false_type {};
template <typename Sample>
struct HasOwnCollate<Sample, std::void_t<decltype(collate(std::declval<std::vector<Sample>>()))>>
    : std::true_type {};

/// Makes a batch of samples of one type. For a type of the user, calls collate(std::vector<Sample>)
/// from the namespace of Sample; if there is none, the batch is the vector itself.
template <typename Sample, typename = void>
struct Collate {
  static auto batch(std::vector<Sample> samples) {
    if constexpr (HasOwnCollate<Sample>::value) {
      return collate(std::move(samples));
    } else {
      return samples;
    }
  }
};

template <>
struct Collate<at::Tensor> {
  static at::Tensor batch(const std::vector<at::Tensor>& samples) { return stack_samples(samples); }
};

template <typename Number>
struct Collate<Number, std::enable_if_t<std::is_arithmetic_v<Number>>> {
  static at::Tensor batch(const std::vector<Number>& samples) {
    using Stored = std::conditional_t<std::is_integral_v<Number>, int64_t, float>;
    return stack_samples(std::vector<Stored>(samples.begin(), samples.end()));
  }
};

/// Collates one member of all samples.
template <typename Sample, typename Get>
auto collate_member(std::vector<Sample>& samples, Get get) {
  using Member = std::decay_t<decltype(get(samples.front()))>;
  std::vector<Member> members;
  members.reserve(samples.size());
  for (Sample& sample : samples) {
    members.push_back(std::move(get(sample)));
  }
  return Collate<Member>::batch(std::move(members));
}

template <typename... Members>
struct Collate<std::tuple<Members...>> {
  using Sample = std::tuple<Members...>;
  static auto batch(std::vector<Sample> samples) {
    return members(samples, std::index_sequence_for<Members...>());
  }
  template <size_t... Index>
  static auto members(std::vector<Sample>& samples, std::index_sequence<Index...>) {
    return std::make_tuple(collate_member(
        samples, [](Sample & sample) -> auto& { return std::get<Index>(sample); })...);
  }
};

template <typename First, typename Second>
struct Collate<std::pair<First, Second>> {
  using Sample = std::pair<First, Second>;
  static auto batch(std::vector<Sample> samples) {
    return std::make_pair(collate_member(
                              samples, [](Sample & sample) -> auto& { return sample.first; }),
                          collate_member(
                              samples, [](Sample & sample) -> auto& { return sample.second; }));
  }
};

template <typename Data, typename Target>
struct Collate<torch::data::Example<Data, Target>> {
  using Sample = torch::data::Example<Data, Target>;
  static auto batch(std::vector<Sample> samples) {
    auto data = collate_member(
        samples, [](Sample & sample) -> auto& { return sample.data; });
    auto target = collate_member(
        samples, [](Sample & sample) -> auto& { return sample.target; });
    return torch::data::Example<decltype(data), decltype(target)>(std::move(data),
                                                                  std::move(target));
  }
};

template <typename Data>
struct Collate<torch::data::Example<Data, void>> {
  using Sample = torch::data::Example<Data, void>;
  static auto batch(std::vector<Sample> samples) {
    auto data = collate_member(
        samples, [](Sample & sample) -> auto& { return sample.data; });
    return torch::data::Example<decltype(data), void>(std::move(data));
  }
};

}  // namespace lockstep::detail
