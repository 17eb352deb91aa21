#pragma once

#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/snapshot_section.h>
#include <lockstep/checkpointing/snapshot/write/content.h>
#include <lockstep/runtime/state_archive.h>

#include <set>
#include <string>

namespace lockstep::detail {

/// Hands state over to a section of a snapshot that is about to be saved. Tensors are referred to,
/// not copied.
class SavingArchive final : public StateArchive {
 public:
  SavingArchive(snapshot::Content& content, std::string section)
      : content_(content), section_(std::move(section)) {}

  Pass pass() const override { return Pass::save; }
  bool has(const std::string& name) const override;
  void tensor(const std::string& name, const at::Tensor& tensor) override;
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like) override;
  void number(const std::string& name, int64_t& value) override;
  void real(const std::string& name, double& value) override;

 private:
  snapshot::Content& content_;
  std::string section_;
};

/// Compares state with a section of a snapshot: fills a report and moves nothing.
class CheckingArchive final : public StateArchive {
 public:
  explicit CheckingArchive(const snapshot::SnapshotSection& section) : section_(section) {}

  Pass pass() const override { return Pass::check; }
  bool has(const std::string& name) const override { return section_.has(name); }
  void tensor(const std::string& name, const at::Tensor& tensor) override;
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like) override;
  void number(const std::string& name, int64_t& value) override;
  void real(const std::string& name, double& value) override;

  /// What is not as it should be; `unexpected` is what nobody asked for.
  snapshot::LoadReport finish();

 private:
  /// Whether there is something of this name; notes what is missing.
  bool found(const std::string& name);
  void compare(const std::string& name, at::IntArrayRef sizes, at::ScalarType dtype);

  const snapshot::SnapshotSection& section_;
  snapshot::LoadReport report_;
  std::set<std::string> used_;
};

/// Gives state back from a section of a snapshot, after a CheckingArchive found nothing wrong.
class LoadingArchive final : public StateArchive {
 public:
  explicit LoadingArchive(const snapshot::SnapshotSection& section) : section_(section) {}

  Pass pass() const override { return Pass::load; }
  bool has(const std::string& name) const override { return section_.has(name); }
  void tensor(const std::string& name, const at::Tensor& tensor) override;
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like) override;
  void number(const std::string& name, int64_t& value) override;
  void real(const std::string& name, double& value) override;

 private:
  const snapshot::SnapshotSection& section_;
};

}  // namespace lockstep::detail
