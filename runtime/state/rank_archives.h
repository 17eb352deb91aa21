#pragma once

#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/checkpointing/snapshot/write/content.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/state_archive.h>

#include <set>
#include <string>

namespace lockstep::detail {

/// Hands state that differs between ranks over to a snapshot, as each rank's own.
class SavingOwnArchive final : public StateArchive {
 public:
  SavingOwnArchive(snapshot::Content& content, std::string section)
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

/// Gives back what SavingOwnArchive saved for this rank. What was not saved stays as it is.
class LoadingOwnArchive final : public StateArchive {
 public:
  LoadingOwnArchive(const Snapshot& saved, std::string section, int rank);

  bool is_empty() const { return names_.empty(); }
  Pass pass() const override { return Pass::load; }
  bool has(const std::string& name) const override { return names_.count(name) > 0; }
  void tensor(const std::string& name, const at::Tensor& tensor) override;
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like) override;
  void number(const std::string& name, int64_t& value) override;
  void real(const std::string& name, double& value) override;

 private:
  at::Tensor read(const std::string& name) const;

  const Snapshot& saved_;
  std::string section_;
  int rank_;
  std::set<std::string> names_;
};

/// Passes rank 0's copy of each tensor on to another archive that saves, so that every rank hands
/// over the same bits. Ranks: collective.
class FirstRankArchive final : public StateArchive {
 public:
  /// `devices`: for tensors of the model's device. `hosts`: for those of the host.
  FirstRankArchive(StateArchive& inner, Communicator devices, Communicator hosts,
                   c10::Device device)
      : inner_(inner), devices_(std::move(devices)), hosts_(std::move(hosts)), device_(device) {}

  Pass pass() const override { return inner_.pass(); }
  bool has(const std::string& name) const override { return inner_.has(name); }
  void tensor(const std::string& name, const at::Tensor& tensor) override;
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like) override;
  void number(const std::string& name, int64_t& value) override { inner_.number(name, value); }
  void real(const std::string& name, double& value) override { inner_.real(name, value); }

 private:
  StateArchive& inner_;
  Communicator devices_;
  Communicator hosts_;
  c10::Device device_;
};

}  // namespace lockstep::detail
