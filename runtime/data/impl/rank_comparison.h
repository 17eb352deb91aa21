#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/data/impl/dataset_access.h>
#include <lockstep/runtime/loader_options.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// A few numbers that identify a sample, taken from any mixture of tensors, numbers, strings,
/// pairs, tuples, vectors and torch::data Examples. Other types add no numbers.
class SampleNumbers {
 public:
  template <typename Value>
  void add(const Value& value) {
    if constexpr (std::is_arithmetic_v<Value>) {
      numbers_.push_back(static_cast<double>(value));
    } else if constexpr (std::is_convertible_v<const Value&, at::Tensor>) {
      add_tensor(value);
    } else if constexpr (std::is_convertible_v<const Value&, std::string>) {
      add_text(value);
    } else {
      add_members(value);
    }
  }
  std::vector<double> take() { return std::move(numbers_); }

 private:
  void add_tensor(const at::Tensor& tensor);
  void add_text(const std::string& text);

  template <typename Value>
  void add_members(const Value&) {}
  template <typename Element>
  void add_members(const std::vector<Element>& elements) {
    add(elements.size());
    for (size_t i = 0; i < elements.size() && i < 8; ++i) {
      add(static_cast<const Element&>(elements[i]));
    }
  }
  template <typename First, typename Second>
  void add_members(const std::pair<First, Second>& pair) {
    add(pair.first);
    add(pair.second);
  }
  template <typename... Members>
  void add_members(const std::tuple<Members...>& tuple) {
    std::apply([&](const auto&... member) { (add(member), ...); }, tuple);
  }
  template <typename Data, typename Target>
  void add_members(const torch::data::Example<Data, Target>& example) {
    add(example.data);
    if constexpr (!std::is_void_v<Target>) {
      add(example.target);
    }
  }

  std::vector<double> numbers_;
};

template <typename Dataset>
std::vector<double> sample_numbers(Dataset& dataset, size_t index, const SampleSeeds& seeds) {
  SampleNumbers numbers;
  if constexpr (!GetBatch<Dataset>::is_ready && HasGet<Dataset>::value) {
    numbers.add(with_sample(index, seeds, [&] { return dataset.get(index); }));
  } else {
    numbers.add(get_batch(dataset, {index}, seeds));
  }
  return numbers.take();
}

/// Gathers how many samples each rank has, in rank order. Throws the same Error (exit code usage)
/// on every rank if the loaders of the ranks differ in an option that decides how many batches a
/// rank gets or in which order, unless compare_ranks is false on every rank. Collective.
std::vector<int64_t> samples_of_each_rank(Communicator control, size_t mine,
                                          const LoaderOptions& options);

/// Compares datasets that are divided among the ranks. Throws the same Error (exit code data) on
/// every rank if the datasets of the ranks differ in size, in their first or last sample, or in any
/// bit of LoaderOptions::weights, unless compare_ranks is false on every rank. A sample that
/// changes when a rank reads it again is not compared. Floating-point numbers may differ by 0.1 %,
/// since ranks may compute them on different processors. Collective.
void require_same_data(Communicator control, size_t size, const LoaderOptions& options,
                       const std::function<std::vector<double>(size_t index)>& sample);

}  // namespace lockstep::detail
