#pragma once

#include <lockstep/inputs/exported/archive/payload.h>
#include <lockstep/inputs/exported/graph/program.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::exported {

/// The programs of an archive and their tensors. Parameters and persistent buffers are the tensors
/// that the module registers; they stay the same objects when the module moves or casts them.
class Model {
 public:
  /// `namespaces`: of registered operators that the programs may call. `without_no_grad`: what the
  /// caller states of decomposed programs.
  Model(const std::string& path, std::vector<std::string> namespaces, bool without_no_grad);
  /// The same programs, with copies of their tensors on `device`, or where they are.
  Model copy(std::optional<c10::Device> device) const;

  /// Parameters and persistent buffers, in Python's order.
  const std::vector<StoredTensor>& registered() const { return registered_; }
  /// The Python class of a module; empty if the program has no operator of it.
  std::string module_type(const std::string& module) const;
  const Program& program(bool training) const;
  const std::string& path() const { return path_; }

  /// The leaves of the output. Throws Error for inputs that do not fit.
  Values run(const std::vector<c10::IValue>& leaves, bool training) const;
  /// Moves tensors that the module does not register; casts floating-point buffers.
  void move(std::optional<c10::Device> device, std::optional<at::ScalarType> dtype,
            bool non_blocking);
  /// Writes the archive again, with the tensors of now; those in `instead` replace the module's.
  void save(const std::string& path,
            const std::vector<std::pair<std::string, at::Tensor>>& instead) const;

 private:
  Program read(class Archive& archive, const std::string& name);
  void check_mode(const Program& program, bool training) const;
  void refuse_lost_gradients(const Program& program, const Values& results) const;
  Place place(const Program& program, const std::vector<c10::IValue>& leaves) const;

  std::string path_;
  std::vector<std::string> namespaces_;
  bool without_no_grad_;
  std::vector<StoredTensor> registered_;
  std::optional<Program> train_;
  std::optional<Program> eval_;
  std::string train_name_;
};

}  // namespace lockstep::exported
