#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/collectives/check.h>

namespace lockstep::amp {
namespace {

constexpr uintptr_t kAlignment = 16;

bool aligned(const at::Tensor& flat) {
  return reinterpret_cast<uintptr_t>(flat.const_data_ptr()) % kAlignment == 0;
}

void launch_squares(const at::Tensor& flat, const MeasuredParts& parts, int first, int count,
                    const at::Tensor& sums) {
  const c10::DeviceGuard on(flat.device());
  check_call(cuda::launch_squares(elements_of(flat), flat.numel(), parts, first, count,
                                  sums.mutable_data_ptr<double>(), current_stream(flat.device())),
             "the measuring kernel");
}

}  // namespace

bool cuda_kernels_available() {
  return true;
}

int cuda_capability(c10::Device device) {
  const int found = cuda::capability(device.index() < 0 ? 0 : device.index());
  LOCKSTEP_CHECK_CODE(found > 0, ExitCode::environment, "there is no device ", device.str(),
                      ": nvidia-smi lists what this process may see");
  return found;
}

void advance_on_cuda(ScalerState* state, const ScalerRule& rule, const float* overflow,
                     c10::Device device) {
  const c10::DeviceGuard on(device);
  check_call(cuda::launch_advance(state, rule, overflow, current_stream(device)),
             "the loss scaler's kernel");
}

void decide_on_cuda(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                    c10::Device device) {
  const c10::DeviceGuard on(device);
  check_call(cuda::launch_decide(decision, scaler, rule, current_stream(device)),
             "the decision's kernel");
}

void conclude_on_cuda(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                      c10::Device device) {
  const c10::DeviceGuard on(device);
  check_call(cuda::launch_conclude(decision, scaler, rule, current_stream(device)),
             "the decision's kernel");
}

void cast_on_cuda(const at::Tensor& to, const at::Tensor& from, double factor) {
  const c10::DeviceGuard on(to.device());
  if (to.scalar_type() == at::kDouble) {
    at::Tensor(to).copy_(from.mul(factor));
    return;
  }
  if (!aligned(to) || !aligned(from)) {
    at::Tensor(to).copy_(from.to(at::kFloat).mul(factor));
    return;
  }
  check_call(cuda::launch_cast(elements_of(to), elements_of(from), to.numel(),
                               static_cast<float>(factor), current_stream(to.device())),
             "the cast kernel");
}

void cast_all_on_cuda(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                      double factor) {
  const auto launch = [&](const CastBatch& batch) {
    const c10::DeviceGuard on(to.front().device());
    check_call(
        cuda::launch_casts(batch, static_cast<float>(factor), current_stream(to.front().device())),
        "the cast kernel");
  };
  CastBatch batch;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].scalar_type() == at::kDouble || !aligned(to[i]) || !aligned(from[i])) {
      cast_on_cuda(to[i], from[i], factor);
      continue;
    }
    if (!batch.add(elements_of(to[i]), elements_of(from[i]), to[i].numel())) {
      launch(batch);
      batch = {};
      batch.add(elements_of(to[i]), elements_of(from[i]), to[i].numel());
    }
  }
  launch(batch);
}

void accumulate_on_cuda(const at::Tensor& sum, const at::Tensor& from) {
  const c10::DeviceGuard on(sum.device());
  if (!aligned(sum) || !aligned(from)) {
    at::Tensor(sum).add_(from);
    return;
  }
  check_call(cuda::launch_accumulate(elements_of(sum), elements_of(from), sum.numel(),
                                     current_stream(sum.device())),
             "the accumulation kernel");
}

void measure_on_cuda(const at::Tensor& flat, const at::Tensor& totals, const MeasuredParts& parts) {
  const MeasuredParts all = parts.each > 0 ? parts : MeasuredParts{packs_of(flat.numel()) * kPack};
  const at::Tensor sums = at::empty({measured_sums_on_cuda(all)}, totals.options());
  launch_squares(flat, all, 0, all.count, sums);
  add_measured_on_cuda(sums, totals);
}

int64_t measured_sums_on_cuda(const MeasuredParts& parts) {
  return int64_t{cuda::measuring_blocks(parts)} * parts.count;
}

void measure_part_on_cuda(const at::Tensor& flat, const MeasuredParts& parts, int part,
                          const at::Tensor& sums) {
  launch_squares(flat, parts, part, 1, sums);
}

void add_measured_on_cuda(const at::Tensor& sums, const at::Tensor& totals) {
  const c10::DeviceGuard on(sums.device());
  check_call(cuda::launch_totals(sums.const_data_ptr<double>(), static_cast<int>(sums.numel()),
                                 static_cast<MeasureTotals*>(totals.mutable_data_ptr()),
                                 current_stream(sums.device())),
             "the measuring kernel");
}

void move_average_on_cuda(const FlatSpan& span, const StepState* state) {
  const c10::DeviceGuard on(span.average.device());
  check_call(
      cuda::launch_average(arrays_of<float>(span), state, current_stream(span.average.device())),
      "the averaging kernel");
}

namespace {

std::vector<UpdateArrays> arrays_of(const std::vector<FlatSpan>& spans) {
  std::vector<UpdateArrays> arrays;
  for (const FlatSpan& span : spans) {
    arrays.push_back(amp::arrays_of<float>(span));
  }
  return arrays;
}

at::Tensor bytes_beside(const FlatSpan& span, int64_t bytes) {
  return at::empty({bytes}, span.gradient.options().dtype(at::kByte));
}

/// Computes the coefficients of all spans' updates once, in device memory; every block reads them.
template <typename Update>
class PreparedSpans {
 public:
  PreparedSpans(const Update& update, const std::vector<FlatSpan>& spans,
                const std::vector<UpdateArrays>& arrays, const StepState* state, void* stream)
      : memory_(bytes_beside(spans.front(),
                             static_cast<int64_t>(spans.size() * sizeof(Coefficients<Update>)))) {
    check_call(cuda::launch_prepare(update, arrays.data(), static_cast<int64_t>(arrays.size()),
                                    of(0), state, stream),
               "the update's kernel");
  }
  Coefficients<Update>* of(size_t span) const {
    return static_cast<Coefficients<Update>*>(memory_.mutable_data_ptr()) + span;
  }

 private:
  at::Tensor memory_;
};

}  // namespace

template <typename Update>
void update_on_cuda(const Update& update, const std::vector<FlatSpan>& spans,
                    const StepState* state) {
  const c10::DeviceGuard on(spans.front().gradient.device());
  void* const stream = current_stream(spans.front().gradient.device());
  const std::vector<UpdateArrays> arrays = arrays_of(spans);
  const PreparedSpans<Update> coefficients(update, spans, arrays, state, stream);
  for (size_t i = 0; i < arrays.size(); ++i) {
    check_call(cuda::launch_update<Update>(arrays[i], coefficients.of(i), state, stream),
               "the update's kernel");
  }
}

#define LOCKSTEP_INSTANTIATE(Update) \
  template void update_on_cuda(const Update&, const std::vector<FlatSpan>&, const StepState*);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)

void update_on_cuda(const LambUpdate& rule, const std::vector<FlatSpan>& spans,
                    const StepState* state) {
  const c10::DeviceGuard on(spans.front().gradient.device());
  void* const stream = current_stream(spans.front().gradient.device());
  const std::vector<UpdateArrays> arrays = arrays_of(spans);
  const PreparedSpans<LambUpdate> coefficients(rule, spans, arrays, state, stream);
  for (size_t first = 0; first < arrays.size(); first += LambBatch::kSpans) {
    LambBatch batch;
    for (size_t i = first; i < arrays.size() && batch.add(arrays[i]); ++i) {
    }
    const at::Tensor memory = bytes_beside(spans.front(), LambScratch::bytes(batch));
    check_call(cuda::launch_lamb(rule, batch, LambScratch::in(memory.mutable_data_ptr(), batch),
                                 coefficients.of(first), state, stream),
               "LAMB's kernel");
  }
}

}  // namespace lockstep::amp
