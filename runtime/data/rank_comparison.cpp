#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/odd_ranks.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/data/impl/rank_comparison.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace lockstep::detail {
namespace {

constexpr int64_t kMostElements = 64;

bool is_close(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         std::abs(a - b) <= 1e-3 * std::max(std::abs(a), std::abs(b));
}

bool are_close(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_close);
}

std::string bytes_of(const std::vector<double>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

std::vector<double> numbers_of(const std::string& bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
  }
  return numbers;
}

/// What to do if each rank has data of its own.
constexpr char kAdvice[] =
    ". runtime.loader() deals one dataset, the same on every rank, out to the ranks: each would "
    "train on a part of its data only. If each rank has samples of its own, call "
    "runtime.local_loader()";

/// Throws the same Error on every rank if weights of samples differ, bit for bit. Collective.
void require_same_weights(const Communicator& control, const at::Tensor& weights) {
  uint64_t digest = 0;
  if (weights.defined()) {
    const at::Tensor host = applied(weights.detach()).to(at::kCPU).contiguous();
    const auto* bytes = static_cast<const uint8_t*>(host.const_data_ptr());
    digest = host.nbytes();
    for (size_t i = 0; i < host.nbytes(); ++i) {
      digest = mixed_seed(digest, bytes[i]);
    }
  }
  const std::vector<std::string> all = control.all_gather_bytes(std::to_string(digest));
  if (const auto odd = odd_ranks(all)) {
    throw Error(
        c10::str("the LoaderOptions::weights of rank ", odd->first, " are not those of rank ",
                 odd->reference, "; pass the same weights on every rank"),
        ExitCode::data, odd->ranks);
  }
}

}  // namespace

void SampleNumbers::add_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_complex() || !why_not_plain(tensor).empty()) {
    return;
  }
  for (const int64_t size : tensor.sizes()) {
    add(size);
  }
  if (tensor.numel() == 0) {
    return;
  }
  const at::Tensor flat = tensor.detach().to(at::kCPU).flatten();
  const int64_t count = std::min(flat.numel(), kMostElements);
  const at::Tensor places = at::linspace(0, flat.numel() - 1, count, at::kDouble).to(at::kLong);
  const at::Tensor some = flat.index_select(0, places).to(at::kDouble).contiguous();
  numbers_.insert(numbers_.end(), some.const_data_ptr<double>(),
                  some.const_data_ptr<double>() + count);
  add(flat.to(at::kDouble).mean().item<double>());
}

void SampleNumbers::add_text(const std::string& text) {
  add(text.size());
  for (size_t i = 0; i < text.size() && i < static_cast<size_t>(kMostElements); ++i) {
    add(static_cast<int>(text[i]));
  }
}

std::vector<int64_t> samples_of_each_rank(Communicator control, size_t mine,
                                          const LoaderOptions& options) {
  constexpr std::array<const char*, 5> kNames = {"batch_size", "shuffle", "drop_last", "epochs",
                                                 "compare_ranks"};
  constexpr int64_t kColumns = 1 + static_cast<int64_t>(kNames.size());
  const at::Tensor own =
      at::tensor({static_cast<int64_t>(mine), options.batch_size(), int64_t{options.shuffle()},
                  int64_t{options.drop_last()}, options.epochs(), int64_t{options.compare_ranks()}},
                 at::kLong);
  const at::Tensor all = at::empty({control.size() * kColumns}, at::kLong);
  control.all_gather(all, own).wait();
  const auto* numbers = all.const_data_ptr<int64_t>();
  const auto of_rank = [&](int rank, int64_t column) { return numbers[rank * kColumns + column]; };
  std::vector<int64_t> samples;
  bool compares = false;
  for (int rank = 0; rank < control.size(); ++rank) {
    samples.push_back(of_rank(rank, 0));
    compares = compares || of_rank(rank, kColumns - 1) != 0;
  }
  for (int64_t column = 1; compares && column < kColumns; ++column) {
    std::vector<std::string> values;
    values.reserve(static_cast<size_t>(control.size()));
    for (int rank = 0; rank < control.size(); ++rank) {
      values.push_back(std::to_string(of_rank(rank, column)));
    }
    if (const auto odd = odd_ranks(values)) {
      throw Error(c10::str("the LoaderOptions of rank ", odd->first, " are not those of rank ",
                           odd->reference, ": ", kNames[static_cast<size_t>(column) - 1], " is ",
                           values[odd->first], " on rank ", odd->first, " and ",
                           values[odd->reference], " on rank ", odd->reference,
                           ". Pass the same options on every rank. If ranks get different "
                           "batches on purpose, switch LoaderOptions().compare_ranks(false) and "
                           "TrainerOptions().uneven_data(true) on every rank"),
                  ExitCode::usage, odd->ranks);
    }
  }
  return samples;
}

void require_same_data(Communicator control, size_t size, const LoaderOptions& options,
                       const std::function<std::vector<double>(size_t index)>& sample) {
  const std::vector<int64_t> sizes = samples_of_each_rank(control, size, options);
  if (!options.compare_ranks()) {  // on no rank
    return;
  }
  std::vector<std::string> counts;
  counts.reserve(sizes.size());
  for (const int64_t samples : sizes) {
    counts.push_back(std::to_string(samples));
  }
  if (const auto odd = odd_ranks(counts)) {
    throw Error(c10::str("the dataset of rank ", odd->first, " has ", counts[odd->first],
                         " samples, that of rank ", odd->reference, " has ", counts[odd->reference],
                         kAdvice),
                ExitCode::data, odd->ranks);
  }
  const detail::Agreement agreement(control);
  const std::vector<size_t> indices =
      size == 0 ? std::vector<size_t>() : std::vector<size_t>{0, size - 1};
  for (const size_t index : indices) {
    std::vector<double> mine;
    agreement.attempt([&] { mine = sample(index); });
    const std::vector<std::string> all = control.all_gather_bytes(bytes_of(mine));
    std::vector<std::string> like;  // each rank's numbers, as those of the first rank near them
    like.reserve(all.size());
    for (const std::string& bytes : all) {
      like.push_back(*std::find_if(all.begin(), all.end(), [&](const std::string& first) {
        return are_close(numbers_of(bytes), numbers_of(first));
      }));
    }
    const auto odd = odd_ranks(like);
    if (!odd) {
      continue;
    }
    bool changes = false;
    agreement.attempt([&] { changes = !are_close(sample(index), mine); });
    if (agreement.any(changes)) {
      continue;
    }
    throw Error(c10::str("sample ", index, " of rank ", odd->first, " is not that of rank ",
                         odd->reference, kAdvice,
                         "; if it is one dataset and yet differs, switch "
                         "LoaderOptions().compare_ranks(false) on every rank"),
                ExitCode::data, odd->ranks);
  }
  require_same_weights(control, options.weights());
}

}  // namespace lockstep::detail
