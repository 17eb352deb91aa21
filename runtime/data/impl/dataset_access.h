#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/util/StringUtil.h>
#include <lockstep/runtime/data/impl/batch_collate.h>
#include <lockstep/runtime/data/impl/sample_random.h>

#include <cstddef>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::data::datasets {
template <typename SourceDataset, typename AppliedTransform>
class MapDataset;
}

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

template <typename Dataset>
struct IsMap : std::false_type {};
template <typename Source, typename Transform>
struct IsMap<torch::data::datasets::MapDataset<Source, Transform>>
    : std::bool_constant<!Source::is_stateful> {};

[[noreturn]] size_t refuse_dataset_without_size();

/// Number of samples. size() of a torch::data dataset returns an optional, which is empty for
/// streams.
template <typename Dataset>
size_t dataset_size(const Dataset& dataset) {
  const auto size = dataset.size();
  if constexpr (std::is_integral_v<std::decay_t<decltype(size)>>) {
    return static_cast<size_t>(size);
  } else {
    return size.has_value() ? static_cast<size_t>(*size) : refuse_dataset_without_size();
  }
}

/// Call in a catch block. Throws an Error that says what failed, with the exit code of the caught
/// exception (out_of_memory, for example), or data if it has none.
[[noreturn]] void rethrow_as_data_error(const std::string& what);

/// Calls `get` for sample `index`, with random numbers that belong to this sample (SampleRandom).
template <typename Get>
auto with_sample(size_t index, const SampleSeeds& seeds, const Get& get) {
  try {
    const SampleRandom random(seeds.of(index));
    return get();
  } catch (const std::exception&) {
    rethrow_as_data_error(c10::str("sample ", index));
  }
}

template <typename Dataset>
auto get_samples(Dataset& dataset, const std::vector<size_t>& indices, const SampleSeeds& seeds) {
  using Sample = std::decay_t<decltype(dataset.get(size_t{0}))>;
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (const size_t index : indices) {
    samples.push_back(with_sample(index, seeds, [&] { return dataset.get(index); }));
  }
  return samples;
}

/// MapDataset exposes its members only as const, although they are not const and their functions
/// are not const either.
template <typename Member>
Member& changeable(const Member& member) {
  return const_cast<Member&>(member);
}

/// Calls get_batch(indices). If a batch is a std::vector of samples, calls get_batch() for one
/// index at a time. The same holds below a transform that turns the vector into a ready batch.
template <typename Dataset>
auto get_batch(Dataset& dataset, const std::vector<size_t>& indices, const SampleSeeds& seeds) {
  if constexpr (!GetBatch<Dataset>::is_ready) {
    typename GetBatch<Dataset>::Result samples;
    for (const size_t index : indices) {
      auto one = with_sample(index, seeds, [&] { return dataset.get_batch({index}); });
      for (auto& sample : one) {
        samples.push_back(std::move(sample));
      }
    }
    return samples;
  } else if constexpr (IsMap<Dataset>::value) {
    auto batch = get_batch(changeable(dataset.dataset()), indices, seeds);
    const SampleRandom random(seeds.of(indices));
    return changeable(dataset.transform()).apply_batch(std::move(batch));
  } else {
    const SampleRandom random(seeds.of(indices));
    return dataset.get_batch(indices);
  }
}

/// Loads the batch of these samples: get_batch(indices) if that returns a ready batch, else
/// get(index) for each sample, collated. Throws Error that names the sample, or
/// whatever get_batch throws.
template <typename Dataset>
auto load_batch(Dataset& dataset, const std::vector<size_t>& indices, const SampleSeeds& seeds) {
  if constexpr (GetBatch<Dataset>::is_ready) {
    return get_batch(dataset, indices, seeds);
  } else if constexpr (HasGet<Dataset>::value) {
    auto samples = get_samples(dataset, indices, seeds);
    return Collate<typename decltype(samples)::value_type>::batch(std::move(samples));
  } else {
    static_assert(GetBatch<Dataset>::exists, "a dataset needs get(index) or get_batch(indices)");
    auto samples = get_batch(dataset, indices, seeds);
    return Collate<typename decltype(samples)::value_type>::batch(std::move(samples));
  }
}

}  // namespace lockstep::detail
