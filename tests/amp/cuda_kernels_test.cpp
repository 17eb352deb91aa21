// The kernels on a GPU against those of the host.
#include "device_spans.h"
#include "test_names.h"
#include "update_samples.h"

#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/cpu_update.h>
#include <lockstep/amp/update/measure.h>

namespace lockstep {
namespace {

const c10::Device kGpu(c10::DeviceType::CUDA, 0);

amp::FlatSpan on_gpu(const amp::FlatSpan& span) {
  amp::FlatSpan result = span;
  for (at::Tensor* array :
       {&result.gradient, &result.master, &result.weight, &result.remainder, &result.average}) {
    *array = array->defined() ? array->to(kGpu) : *array;
  }
  for (at::Tensor& moment : result.moments) {
    moment = moment.to(kGpu);
  }
  return result;
}

at::Tensor state_on_gpu(const amp::StepState& state) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof state)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &state, sizeof state);
  return bytes.to(kGpu);
}

/// Coefficients come from pow() in fp64, whose last bit may differ between host and device.
void expect_close(const at::Tensor& host, const at::Tensor& device) {
  EXPECT_EQ(host.defined(), device.defined());
  if (host.defined()) {
    const double tolerance = host.scalar_type() == at::kFloat ? 1e-6 : 1e-2;
    EXPECT_TRUE(at::allclose(device.cpu().to(at::kFloat), host.to(at::kFloat), tolerance, 1e-6));
  }
}

template <typename Update>
void expect_the_hosts_update(const Update& update) {
  amp::StepState state;
  state.gradient_factor = 0.37F;
  state.update = 3;
  const at::Tensor device_state = state_on_gpu(state);
  for (const SpanKind& kind : span_kinds()) {
    for (const int64_t size : pack_sizes()) {
      const amp::FlatSpan host = random_span(kind, size, Update::kMoments);
      const amp::FlatSpan device = on_gpu(host);
      amp::update_on_cpu(update, host, state);
      amp::update_on_cuda(update, {device},
                          static_cast<const amp::StepState*>(device_state.const_data_ptr()));
      expect_close(host.master, device.master);
      expect_close(host.weight, device.weight);
      for (size_t m = 0; m < host.moments.size(); ++m) {
        expect_close(host.moments[m], device.moments[m]);
      }
    }
  }
}

TEST(CudaKernels, UpdateAsTheHostDoes) {
#define LOCKSTEP_EXPECT(Update) expect_the_hosts_update(sample<amp::Update>());
  LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_EXPECT)
}

/// The last bit of a coefficient can move a random rounding to its other neighbour.
void expect_few_differ(const at::Tensor& host, const at::Tensor& device, const std::string& what) {
  EXPECT_LE((device.cpu() != host).sum().item<int64_t>(), 1 + host.numel() / 1000) << what;
}

TEST(CudaKernels, KeepNarrowFormsAsTheHostDoes) {
  const auto update = sample<amp::AdamWUpdate>();
  amp::StepState state;
  state.update = 3;
  const at::Tensor device_state = state_on_gpu(state);
  for (const SpanForm& form : span_forms()) {
    const auto rule = amp::flat_rule(update, form.moments);
    for (const int64_t size : {7, 64, 70001}) {
      const amp::FlatSpan host = span_in_form(form, size, *rule);
      const amp::FlatSpan device = on_gpu(host);
      rule->apply(host, &state);
      rule->apply(device, static_cast<const amp::StepState*>(device_state.const_data_ptr()));
      expect_close(host.master, device.master);
      expect_close(host.average, device.average);
      expect_few_differ(host.weight, device.weight, describe(form, size));
      for (size_t m = 0; m < host.moments.size(); ++m) {
        expect_few_differ(host.moments[m], device.moments[m], describe(form, size));
      }
    }
  }
}

TEST(CudaKernels, MoveManyParametersByLambAsTheHostDoes) {
  amp::StepState state;
  state.update = 3;
  const at::Tensor device_state = state_on_gpu(state);
  for (const SpanForm& form : span_forms()) {
    const auto rule = LAMB(1e-2).weight_decay(0.1).moments(form.moments).rule(0);
    std::vector<amp::FlatSpan> host;
    std::vector<amp::FlatSpan> device;
    for (int64_t k = 0; k < 20; ++k) {
      host.push_back(span_in_form(form, 1 + 997 * k, *rule));
      device.push_back(on_gpu(host.back()));
    }
    rule->apply_all(host, &state);
    rule->apply_all(device, static_cast<const amp::StepState*>(device_state.const_data_ptr()));
    for (size_t i = 0; i < host.size(); ++i) {
      expect_close(host[i].master, device[i].master);
      expect_close(host[i].average, device[i].average);
      expect_few_differ(host[i].weight, device[i].weight, describe(form, host[i].gradient.numel()));
    }
  }
}

TEST(CudaKernels, WriteNothingWhenTheUpdateIsSkipped) {
  amp::StepState state;
  state.skip = true;
  const at::Tensor device_state = state_on_gpu(state);
  const amp::FlatSpan span = on_gpu(random_span({at::kHalf, at::kFloat, at::kHalf}, 5003, 2));
  const amp::FlatSpan before = on_gpu(deep_copy(span));
  amp::update_on_cuda(sample<amp::AdamWUpdate>(), {span},
                      static_cast<const amp::StepState*>(device_state.const_data_ptr()));
  EXPECT_TRUE(at::equal(span.master, before.master));
  EXPECT_TRUE(at::equal(span.moments[1], before.moments[1]));
  const auto rule = AdamW(1e-2).moments(MomentFormat::bf16).rule(0);
  const SpanForm form{MomentFormat::bf16, false, true, false, true};
  const amp::FlatSpan narrow = on_gpu(span_in_form(form, 5003, *rule));
  const amp::FlatSpan narrow_before = on_gpu(deep_copy(narrow));
  rule->apply(narrow, static_cast<const amp::StepState*>(device_state.const_data_ptr()));
  EXPECT_TRUE(at::equal(narrow.weight, narrow_before.weight));
  EXPECT_TRUE(at::equal(narrow.average, narrow_before.average));
  EXPECT_TRUE(at::equal(narrow.moments[1], narrow_before.moments[1]));
}

TEST(CudaKernels, CastAndAccumulateAtEveryAlignment) {
  const at::Tensor source = at::randn({1005});
  for (const int64_t skip : {0, 1, 3, 8}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const at::Tensor from = source.to(kGpu).narrow(0, skip, 900);
      const at::Tensor to = at::zeros({1005}, from.options().dtype(dtype)).narrow(0, skip, 900);
      amp::cast_on_cuda(to, from, 0.5);
      EXPECT_TRUE(at::equal(to.cpu(), source.narrow(0, skip, 900).mul(0.5).to(dtype))) << skip;
      const at::Tensor sum = at::ones({900}, from.options());
      amp::accumulate_on_cuda(sum, to);
      EXPECT_TRUE(at::equal(sum.cpu(), to.cpu().to(at::kFloat) + 1)) << skip;
    }
  }
}

TEST(CudaKernels, MeasureAsTheHostDoesAndAlwaysTheSame) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor flat = at::randn({3000001}).to(dtype);
    const at::Tensor first = at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(kGpu));
    const at::Tensor second = at::zeros_like(first);
    amp::measure_on_cuda(flat.to(kGpu), first);
    amp::measure_on_cuda(flat.to(kGpu), second);
    EXPECT_TRUE(at::equal(first, second));
    const double expected = amp::measure(flat).sum_squares;
    EXPECT_NEAR(first[0].item<double>(), expected, 1e-10 * expected);
    EXPECT_EQ(first[1].item<double>(), 0.0);
  }
  at::Tensor bad = at::ones({100003}, at::TensorOptions().dtype(at::kHalf).device(kGpu));
  bad[100002] = INFINITY;
  const at::Tensor totals = at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(kGpu));
  amp::measure_on_cuda(bad, totals);
  EXPECT_EQ(totals[1].item<double>(), 1.0);
}

TEST(CudaKernels, TheLossScalerMovesAsOnTheHost) {
  amp::LossScaler host;
  amp::LossScaler device({}, kGpu);
  const auto flag = [](float value) {
    return at::full({}, value, at::TensorOptions().dtype(at::kFloat).device(kGpu));
  };
  for (const bool overflow : {true, false, false, true, true}) {
    host.update(overflow);
    device.update(flag(overflow ? 1.0F : 0.0F));
    EXPECT_EQ(host.value(), device.value());
  }
}

}  // namespace
}  // namespace lockstep
