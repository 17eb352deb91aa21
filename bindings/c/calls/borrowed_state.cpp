#include <lockstep/bindings/c/calls/borrowed_state.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

#include <exception>

namespace lockstep::c {

void BorrowedState::write_restored(const std::string& name, Entry& entry) {
  if (entry.value.is_same(entry.array)) {
    return;
  }
  const at::Tensor saved = std::exchange(entry.value, entry.array);
  LOCKSTEP_CHECK_CODE(saved.defined() && saved.sizes() == entry.array.sizes() &&
                          saved.scalar_type() == entry.array.scalar_type(),
                      ExitCode::snapshot, "state \"", name, "\" is ", entry.array.scalar_type(),
                      " ", entry.array.sizes(),
                      " now, the snapshot has another shape or dtype; "
                      "resume with the program of the saved run");
  entry.array.copy_(saved);
}

void BorrowedState::add(Trainer& trainer, const std::string& name, const at::Tensor& array) {
  Entry& entry = entries_[name];
  entry = {array, array};
  trainer.state(name, entry.value);
  write_restored(name, entry);
}

void BorrowedState::write_restored() {
  std::exception_ptr failure;
  for (auto& [name, entry] : entries_) {  // all, even after an error: others would be saved again
    try {
      write_restored(name, entry);
    } catch (const Error&) {
      failure = failure ? failure : std::current_exception();
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace lockstep::c
