#pragma once

#include <c10/util/StringUtil.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/data/collate.h>

#include <cstddef>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

template <typename Type>
struct IsVector : std::false_type {};
template <typename Element>
struct IsVector<std::vector<Element>> : std::true_type {};

template <typename Dataset, typename = void>
struct HasGet : std::false_type {};
template <typename Dataset>
struct HasGet<Dataset, std::void_t<decltype(std::declval<Dataset&>().get(size_t{0}))>>
    : std::true_type {};

template <typename Dataset, typename = void>
struct GetBatch {
  static constexpr bool exists = false;
  static constexpr bool is_ready = false;
};
template <typename Dataset>
struct GetBatch<Dataset, std::void_t<decltype(std::declval<Dataset&>().get_batch(
                             std::declval<const std::vector<size_t>&>()))>> {
  using Result = std::decay_t<decltype(std::declval<Dataset&>().get_batch(
      std::declval<const std::vector<size_t>&>()))>;
  static constexpr bool exists = true;
  static constexpr bool is_ready = !IsVector<Result>::value;
};

/// Number of samples; torch::data datasets return an optional, which is empty for streams.
template <typename Dataset>
size_t dataset_size(const Dataset& dataset) {
  const auto size = dataset.size();
  if constexpr (std::is_integral_v<std::decay_t<decltype(size)>>) {
    return static_cast<size_t>(size);
  } else {
    LOCKSTEP_CHECK(size.has_value(),
                   "the dataset has no size(), so it cannot be shared among ranks; "
                   "expected one with a fixed number of samples");
    return static_cast<size_t>(*size);
  }
}

[[noreturn]] inline void rethrow_as_data_error(const std::string& what) {
  try {
    throw;
  } catch (const std::exception& error) {
    throw Error(c10::str(what, " failed: ", error.what()), ExitCode::data);
  }
}

template <typename Dataset>
auto get_samples(Dataset& dataset, const std::vector<size_t>& indices) {
  using Sample = std::decay_t<decltype(dataset.get(size_t{0}))>;
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (const size_t index : indices) {
    try {
      samples.push_back(dataset.get(index));
    } catch (const std::exception&) {
      rethrow_as_data_error(c10::str("sample ", index));
    }
  }
  return samples;
}

/// The batch of these samples: get_batch(indices) where that gives a ready one, else get(index)
/// for each, collated. Throws Error (data) that names the sample, or whatever get_batch throws.
template <typename Dataset>
auto load_batch(Dataset& dataset, const std::vector<size_t>& indices) {
  if constexpr (GetBatch<Dataset>::is_ready) {
    return dataset.get_batch(indices);
  } else if constexpr (HasGet<Dataset>::value) {
    auto samples = get_samples(dataset, indices);
    return Collate<typename decltype(samples)::value_type>::batch(std::move(samples));
  } else {
    static_assert(GetBatch<Dataset>::exists, "a dataset needs get(index) or get_batch(indices)");
    auto samples = dataset.get_batch(indices);
    return Collate<typename decltype(samples)::value_type>::batch(std::move(samples));
  }
}

}  // namespace lockstep::detail
