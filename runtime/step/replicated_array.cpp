#include <lockstep/runtime/step/impl/replicated_array.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/replicas.h>

namespace lockstep::detail {

at::Tensor ReplicatedArray::flat() const {
  return array.is_non_overlapping_and_dense() ? flat_alias(array, "") : array.contiguous();
}

uint64_t ReplicatedArray::digest() const {
  return detail::digest({flat()});
}

std::optional<DigestDifference> difference_between_ranks(const std::vector<ReplicatedArray>& arrays,
                                                         const Agreement& agreement) {
  std::vector<uint64_t> mine;
  agreement.attempt([&] {
    for (const ReplicatedArray& each : arrays) {
      mine.push_back(each.digest());
    }
  });
  const size_t bytes = mine.size() * sizeof(uint64_t);
  if (same_on_all_ranks(digest_of(mine.data(), bytes), agreement.communicator())) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const ReplicatedArray& each : arrays) {
    names.push_back(each.name);
  }
  const std::string text(reinterpret_cast<const char*>(mine.data()), bytes);
  return difference_of(names, agreement.communicator().all_gather_bytes(text));
}

}  // namespace lockstep::detail
