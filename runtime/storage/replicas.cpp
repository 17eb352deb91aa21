#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/odd_ranks.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/renormed_tables.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <xxhash.h>

#include <algorithm>
#include <sstream>

namespace lockstep::detail {
namespace {

void describe(std::ostringstream& out, const char* kind, const std::vector<ModelTensor>& tensors) {
  for (const ModelTensor& entry : tensors) {
    const at::Tensor& tensor = entry.tensor;
    out << kind << ' ' << entry.name << " sizes " << tensor.sizes() << " strides "
        << tensor.strides() << ' ' << tensor.scalar_type()
        << (tensor.requires_grad() ? " trainable" : " frozen") << '\n';
  }
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    result.push_back(line);
  }
  return result;
}

/// What differs first between the lines of two ranks.
std::string first_difference(const std::vector<std::string>& texts, size_t right, size_t rank) {
  const std::vector<std::string> reference = lines(texts[right]);
  const std::vector<std::string> other = lines(texts[rank]);
  size_t at = 0;
  while (at < reference.size() && at < other.size() && reference[at] == other[at]) {
    ++at;
  }
  const auto line = [&](const std::vector<std::string>& all) {
    return at < all.size() ? all[at] : std::string("nothing more");
  };
  return c10::str("the model of rank ", rank, " (", other.size(),
                  " parameters and buffers) differs from that of rank ", right, " (",
                  reference.size(), "); first difference: rank ", right, " has ", line(reference),
                  ", rank ", rank, " has ", line(other),
                  ". Build the same model, in the same order, on every rank");
}

void note_digests(const std::vector<at::Tensor>& flats, const at::Tensor& digests) {
  auto* values = digests.mutable_data_ptr<int64_t>();
  for (const at::Tensor& flat : flats) {
    *values++ = static_cast<int64_t>(digest({flat}));
  }
}

}  // namespace

uint64_t digest(const std::vector<at::Tensor>& flat_tensors) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const at::Tensor& flat : flat_tensors) {
    const at::Tensor host = flat.cpu();
    XXH3_64bits_update(state.get(), host.const_data_ptr(), host.nbytes());
  }
  return XXH3_64bits_digest(state.get());
}

bool same_on_all_ranks(uint64_t digest, const Communicator& communicator) {
  const at::Tensor mine = at::empty({1}, at::kLong);
  const at::Tensor all = at::empty({communicator.size()}, at::kLong);
  mine.fill_(static_cast<int64_t>(digest));
  communicator.all_gather(all, mine).wait();
  const auto* values = all.const_data_ptr<int64_t>();
  return std::all_of(values, values + all.numel(),
                     [&](int64_t value) { return value == static_cast<int64_t>(digest); });
}

uint64_t digest_of(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

void require_same_structure(const Model& model, const Agreement& agreement) {
  std::ostringstream out;
  describe(out, "parameter", model.parameters());
  describe(out, "buffer", model.buffers());
  out << RenormedTables(model, Communicator::solo()).describe();
  const std::string mine = out.str();
  if (same_on_all_ranks(XXH3_64bits(mine.data(), mine.size()), agreement.communicator())) {
    return;
  }
  const auto all = agreement.communicator().all_gather_bytes(mine);
  if (const auto odd = odd_ranks(all)) {
    throw Error(first_difference(all, odd->reference, odd->first), ExitCode::usage, odd->ranks);
  }
}

void require_same_text(const std::string& what, const std::string& text,
                       const Agreement& agreement) {
  if (same_on_all_ranks(XXH3_64bits(text.data(), text.size()), agreement.communicator())) {
    return;
  }
  const auto all = agreement.communicator().all_gather_bytes(text);
  if (const auto odd = odd_ranks(all)) {
    const auto [one, other] = std::minmax(odd->first, odd->reference);
    throw Error(c10::str(what, " differs between ranks: rank ", one, " has ", all[one], "; rank ",
                         other, " has ", all[other], ". Pass the same on every rank"),
                ExitCode::usage, odd->ranks);
  }
}

void broadcast_and_verify(const std::vector<ModelTensor>& tensors, Communicator& communicator,
                          const Agreement& agreement) {
  if (tensors.empty()) {
    return;
  }
  const Communicator& ranks = agreement.communicator();
  std::vector<at::Tensor> flats;
  const at::Tensor mine = at::empty({static_cast<int64_t>(tensors.size())}, at::kLong);
  agreement.attempt([&] {
    for (const ModelTensor& entry : tensors) {
      flats.push_back(flat_alias(entry.tensor, entry.name));
    }
    note_digests(flats, mine);
  });
  const at::Tensor all = at::empty({ranks.size(), mine.numel()}, at::kLong);
  ranks.all_gather(all.view({-1}), mine).wait();
  const at::Tensor same = all.eq(all[0]).all(0);
  if (same.all().item<bool>()) {
    return;
  }
  for (size_t i = 0; i < flats.size(); ++i) {
    if (!same[static_cast<int64_t>(i)].item<bool>()) {
      communicator.broadcast(flats[i]).wait();
    }
  }
  uint64_t after = 0;
  agreement.attempt([&] { after = digest(flats); });
  LOCKSTEP_CHECK_CODE(same_on_all_ranks(after, ranks), ExitCode::diverged, "rank ",
                      communicator.rank(),
                      ": after the start-up broadcast parameters and buffers are not equal on all "
                      "ranks; memory or transport is faulty");
}

}  // namespace lockstep::detail
