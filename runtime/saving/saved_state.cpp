#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/saving/own/saved_state.h>
#include <lockstep/runtime/storage/impl/flat.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace lockstep::detail {
namespace {

/// The sizes under which a tensor is saved in parts: its own if it is contiguous, else the number
/// of elements, in memory order.
std::vector<int64_t> sizes_of_parts(const at::Tensor& like) {
  return like.is_contiguous() ? like.sizes().vec() : std::vector<int64_t>{like.numel()};
}

/// True if the section has this tensor, which is not contiguous, in memory order: saved in parts.
bool is_in_memory_order(const snapshot::SnapshotSection& section, const std::string& name,
                        const at::Tensor& like) {
  return !like.is_contiguous() &&
         at::IntArrayRef(section.sizes(name)) == at::IntArrayRef({like.numel()});
}

/// Elements [begin, end) of the memory of a tensor like `like`.
at::Tensor read_memory(const snapshot::SnapshotSection& section, const std::string& name,
                       int64_t begin, int64_t end, const at::Tensor& like) {
  if (like.is_contiguous() || is_in_memory_order(section, name, like)) {
    return section.read_elements(name, begin, end);
  }
  const auto options = like.options().device(at::kCPU).dtype(section.dtype(name));
  const at::Tensor whole = at::empty_like(like, options);
  whole.copy_(section.read(name));
  return flat_alias(whole, name).narrow(0, begin, end - begin);
}

using Pass = StateArchive::Pass;

}  // namespace

void save_state(const StateVisit& visit, snapshot::Content& content, const std::string& section) {
  bool any_passes = false;
  StateArchive archive(Pass::list, [&](const StateEntry& entry) {
    if (entry.kind == StateEntry::Kind::passing) {
      content.add_later(section, entry.name, entry.place);
      any_passes = true;
    } else if (!entry.is_part()) {
      content.add(section, entry.name, entry.place);
    } else if (entry.place.numel() > 0 || entry.like.numel() == 0) {
      content.add_slice(section, entry.name, entry.place, entry.begin, sizes_of_parts(entry.like));
    }
  });
  visit(archive);
  if (any_passes) {
    content.fetch_by(section, [visit](const snapshot::Content::Take& take) {
      StateArchive values(Pass::save, [&](const StateEntry& entry) {
        if (entry.kind == StateEntry::Kind::passing) {
          take(entry.name, entry.place);
        }
      });
      visit(values);
    });
  }
}

snapshot::LoadReport check_state(const StateVisit& visit,
                                 const snapshot::SnapshotSection& section) {
  snapshot::LoadReport report;
  std::set<std::string> used;
  const auto has = [&](const std::string& name) { return section.has(name); };
  const auto compare = [&](const StateEntry& entry) {
    if (!has(entry.name)) {
      report.missing.push_back(entry.name);
      return;
    }
    used.insert(entry.name);
    const std::vector<int64_t> flat = {entry.whole().numel()};
    const bool is_flat = is_in_memory_order(section, entry.name, entry.whole());
    const std::string why = snapshot::why_misshapen(
        section, entry.name, is_flat ? at::IntArrayRef(flat) : entry.whole().sizes(),
        entry.place.scalar_type());
    if (!why.empty()) {
      report.misshapen.push_back(entry.name + ": " + why);
    }
  };
  StateArchive archive(Pass::check, compare, has);
  visit(archive);
  for (const std::string& name : section.names()) {
    if (used.count(name) == 0) {
      report.unexpected.push_back(name);
    }
  }
  return report;
}

void load_state(const StateVisit& visit, const snapshot::SnapshotSection& section) {
  const auto load = [&](const StateEntry& entry) {
    const c10::AutoGradMode no_grad(false);
    if (entry.is_part()) {
      entry.place.copy_(read_memory(section, entry.name, entry.begin,
                                    entry.begin + entry.place.numel(), entry.like));
    } else if (is_in_memory_order(section, entry.name, entry.place)) {
      flat_alias(entry.place, entry.name).copy_(section.read(entry.name));
    } else {
      entry.place.copy_(section.read(entry.name));
    }
  };
  StateArchive archive(Pass::load, load,
                       [&](const std::string& name) { return section.has(name); });
  visit(archive);
}

void save_own_state(const StateVisit& visit, snapshot::Content& content,
                    const std::string& section) {
  StateArchive archive(Pass::save, [&](const StateEntry& entry) {
    require_no_part(entry);
    content.add_own(section, entry.name, entry.place);
  });
  visit(archive);
}

void load_own_state(const StateVisit& visit, const Snapshot& saved, const std::string& section,
                    int rank) {
  const std::vector<std::string> names = saved.own_names(section, rank);
  const auto has = [all = std::set<std::string>(names.begin(), names.end())](
                       const std::string& name) { return all.count(name) > 0; };
  const auto load = [&](const StateEntry& entry) {
    const c10::AutoGradMode no_grad(false);
    require_no_part(entry);
    if (has(entry.name)) {
      entry.place.copy_(saved.read_own(section, rank, entry.name));
    }
  };
  StateArchive archive(Pass::load, load, has);
  visit(archive);
}

void require_no_part(const StateEntry& entry) {
  LOCKSTEP_CHECK(!entry.is_part(), "the state ", entry.name,
                 " is spread over ranks, and cannot be each rank's own");
}

}  // namespace lockstep::detail
