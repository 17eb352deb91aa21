// How a step goes through the parts of a Training.
#include <lockstep/runtime/training.h>

#include <iostream>

namespace lockstep {

void Training::require_open_window() const {
  LOCKSTEP_CHECK(!steps->window_full(), "the window is full: call update() before the next step()");
}

void Training::require_no_graph() const {
  LOCKSTEP_CHECK(graphed == nullptr,
                 "with cuda_graph only step(inputs, closure) can be called: the "
                 "inputs of a record are replaced, its closure is not");
}

StepReport Training::step(const std::function<Loss()>& closure) {
  require_open_window();
  require_no_graph();
  begin_window();
  return micro_batch(closure);
}

StepReport Training::step(const std::vector<at::Tensor>& inputs,
                          const GraphedSteps::Closure& closure) {
  require_open_window();
  begin_window();
  if (graphed == nullptr) {
    return micro_batch([&] { return closure(inputs); });
  }
  return graphed->run(inputs, closure);
}

StepReport Training::micro_batch(const std::function<Loss()>& closure) {
  const bool measured = activations.watch(
      runtime.device().type(), [&] { steps->micro_batch(closure, /*under_autocast=*/true); });
  if (measured && runtime.is_main()) {
    std::cerr << activations.report() << std::endl;
  }
  return report();
}

StepReport Training::step_without_data() {
  LOCKSTEP_CHECK(!steps->window_full(), "the window is full: call update() first");
  begin_window();
  steps->empty_micro_batch();
  return report();
}

void Training::backward(const Loss& loss) {
  LOCKSTEP_CHECK(!steps->window_full(),
                 "backward() was called accumulate() times: call update() now");
  require_no_graph();
  begin_window();
  steps->micro_batch([&] { return loss; }, /*under_autocast=*/false);
}

StepReport Training::update() {
  LOCKSTEP_CHECK(steps->window_full(), "update() before backward(): the window has ",
                 steps->micro_batches_in_window(),
                 " micro-batches, fewer than accumulate(); call backward(loss) first");
  return close_window();
}

void Training::begin_window() {
  runtime.loaders().note_step();
  steps->begin_window();
  advance_saving();
}

StepReport Training::report() {
  return steps->window_full() ? close_window() : steps->report_open_window();
}

/// The update, and what a pending snapshot may do next now that the ranks have met.
StepReport Training::close_window() {
  return close_by([this] { return steps->close_window(); });
}

StepReport Training::close_by(const std::function<StepReport()>& close) {
  saving->require_own_folder();
  steps->tell_saved(saving->is_ready());
  StepReport report = close();
  advance_saving();
  if (auto ended = saving->take_ended()) {
    report.saved_ = std::make_shared<const snapshot::SaveReport>(std::move(*ended));
  }
  return report;
}

void Training::advance_saving() {
  if (steps->take_saved_everywhere()) {
    saving->advance();
  }
}

}  // namespace lockstep
