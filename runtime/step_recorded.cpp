// A window of one micro-batch as work that can be recorded.
#include <ATen/ops/empty_like.h>
#include <lockstep/runtime/step.h>

namespace lockstep {

bool Step::can_be_recorded() const {
  LOCKSTEP_CHECK(!kind_is_sum_.value_or(false),
                 "cuda_graph: a Loss::sum is divided by a weight that the host must know before "
                 "backward; return a mean, or use cuda_graph(false)");
  return !agrees_first() && decisions_.known().updates > 0;
}

at::Tensor Step::loss_like() const {
  return at::empty_like(last_loss_);
}

void Step::run_window(const std::function<Loss()>& closure, const at::Tensor& loss) {
  if (parts_.options.precision().autocast()) {
    weight_casts_.emplace(weights_);
  }
  const Loss mine = under_autocast(closure);
  require_scalar_with_grad(mine.tensor());
  LOCKSTEP_CHECK(!mine.is_sum(), "this loss is a Loss::sum, the earlier ones were not");
  loss.copy_(mine.tensor().detach().reshape({}));
  parts_.reducer.synchronise(packing_factor());
  backward(mine);
  parts_.reducer.launch_rest();
  if (const auto problem =
          window_problem(parts_.reducer, parts_.trainable, parts_.options.unused())) {
    throw *problem;
  }
  measure();
  consensus_.share_flags(decisions_);
  move_everything();
  end_window();
}

StepReport Step::close_recorded_window(const at::Tensor& loss) {
  with_data_ = 1;
  weight_ = 1.0;
  is_sum_ = false;
  ++micro_batches_;
  Word mine = word();
  parts_.replicas->add_to(mine, windows_);
  consensus_.post(mine);
  conclude_on_host();
  last_loss_ = loss.clone();
  StepReport report = report_open_window();
  report.closes_update_ = true;
  report.decided_ = true;
  end_window();
  return report;
}

}  // namespace lockstep
