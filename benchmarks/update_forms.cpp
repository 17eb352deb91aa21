// update_forms [SCALE]: times one update of 14.7M parameters on one thread, for every optimizer and
// form of weights and moments. Beside it, a copy of as many bytes as the update reads and writes.
// Also the pass that measures a bucket, and how often autocast casts weights between two updates.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/measure.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "one_thread_main.h"
#include "recorder.h"

namespace lockstep::benchmarks {

using namespace detail;

namespace {

constexpr int64_t numel = 14 << 20;
constexpr int warm_up = 2, repetitions = 9;

enum class Weights { fp32, masters, remainders, random };

struct Form {
  const char* name;
  std::shared_ptr<OptimizerSpec> spec;
  at::ScalarType wire;
  Weights weights;
  bool average = false;
};

amp::FlatSpan span_of(const Form& form, const amp::UpdateRule& rule) {
  amp::FlatSpan span;
  span.gradient = at::randn({numel}).to(form.wire);
  if (form.weights == Weights::fp32 || form.weights == Weights::masters) {
    span.master = at::randn({numel});
  }
  if (form.weights != Weights::fp32) {
    span.weight = at::randn({numel}).to(at::kBFloat16);
  }
  if (form.weights == Weights::remainders) {
    span.remainder = at::zeros({numel}, at::kShort);
  }
  span.rounds_randomly = form.weights == Weights::random;
  if (form.average) {
    span.average = at::zeros({numel});
    span.average_rest = 1e-3F;
  }
  amp::add_moments(span, rule);
  return span;
}

/// What an update must read and write. Two passes (LAMB's, over whole parameters) read weights and
/// moments twice.
int64_t bytes_moved(const amp::FlatSpan& span, const amp::UpdateRule& rule) {
  auto bytes = static_cast<int64_t>(span.gradient.nbytes());
  const auto add = [&](const at::Tensor& array, int64_t times) {
    bytes += array.defined() ? times * static_cast<int64_t>(array.nbytes()) : 0;
  };
  const int64_t reads_and_writes = rule.whole_parameters() ? 3 : 2;
  add(amp::updated_array(span), reads_and_writes);
  add(span.remainder, reads_and_writes);
  for (const at::Tensor& moment : span.moments) {
    add(moment, reads_and_writes);
  }
  add(span.average, 2);
  add(span.master.defined() ? span.weight : at::Tensor(), 1);
  return bytes;
}

/// Times `ours` and a copy of `bytes` bytes, half read and half written, in turn.
template <typename Body>
void measure_beside_copy(const std::string& name, int64_t bytes, int runs, const Body& body) {
  const at::Tensor from = at::zeros({bytes / 2}, at::kByte);
  const at::Tensor to = at::zeros({bytes / 2}, at::kByte);
  Series ours(name, "ours");
  Series copy(name, "copy");
  for (int run = 0; run < warm_up + runs; ++run) {
    const bool counts = run >= warm_up;
    if (counts) {
      ours.begin();
    }
    body();
    if (counts) {
      ours.end();
      copy.begin();
    }
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    if (counts) {
      copy.end();
    }
  }
  for (Series* series : {&ours, &copy}) {
    series->note("bytes", bytes);
    series->note("parameters", numel);
    series->write();
  }
}

void measure_form(const Form& form, int runs) {
  const auto rule = form.spec->fused()->rule(0);
  const amp::FlatSpan span = span_of(form, *rule);
  amp::StepState state;
  measure_beside_copy(form.name, bytes_moved(span, *rule), runs, [&] {
    rule->apply(span, &state);
    ++state.update;
  });
}

void measure_measuring(at::ScalarType dtype, const std::string& name, int runs) {
  const at::Tensor flat = at::randn({numel}).to(dtype);
  Series one_pass(name, "ours");
  Series two_passes(name, "libtorch");
  for (int run = 0; run < runs; ++run) {
    one_pass.begin();
    const bool finite = amp::measure(flat).finite;
    one_pass.end();
    two_passes.begin();
    const bool also = at::isfinite(flat).all().item<bool>() && flat.norm().item<double>() > 0;
    two_passes.end();
    if (finite != also) {
      throw std::runtime_error(name + ": the peers disagree");
    }
  }
  one_pass.write();
  two_passes.write();
}

/// Casts in the forwards of four micro-batches of four Linear layers, each used twice.
class CastCount {
 public:
  CastCount() {
    count_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          count_ += std::strcmp(function.name(), "aten::_to_copy") == 0 ? 1 : 0;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CastCount() { at::removeCallback(handle_); }
  void write(const char* variant) const {
    Series series("o1 casts", variant);
    series.note("casts", count_);
    series.write();
  }

 private:
  inline static int64_t count_ = 0;
  at::CallbackHandle handle_;
};

void forwards(std::vector<torch::nn::Linear>& layers, const at::Tensor& x) {
  for (int use = 0; use < 2; ++use) {
    for (torch::nn::Linear& layer : layers) {
      layer(x);
    }
  }
}

void count_casts() {
  std::vector<torch::nn::Linear> layers;
  for (int i = 0; i < 4; ++i) {
    layers.emplace_back(8, 8);
  }
  const at::Tensor x = at::randn({2, 8}).to(at::kBFloat16);
  {
    const CastCount count;
    amp::WeightSet weights;
    for (const torch::nn::Linear& layer : layers) {
      weights.insert({layer->weight.unsafeGetTensorImpl(), layer->bias.unsafeGetTensorImpl()});
    }
    const amp::WeightCastScope window(weights);
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
      const amp::Autocast autocast(c10::kCPU, at::kBFloat16);
      forwards(layers, x);
    }
    count.write("ours");
  }
  const CastCount count;
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    at::autocast::set_autocast_enabled(c10::kCPU, true);
    at::autocast::increment_nesting();
    forwards(layers, x);
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(c10::kCPU, false);
  }
  count.write("libtorch");
}

void measure(double scale) {
  const int runs = std::max(3, static_cast<int>(repetitions * scale));
  const AdamW adamw(1e-3);
  const auto with = [&](MomentFormat format) { return AdamW(adamw).moments(format).clone(); };
  const auto fp32 = with(MomentFormat::fp32);
  for (const Form& form : std::initializer_list<Form>{
           {"adamw fp32", fp32, at::kFloat, Weights::fp32},
           {"adamw bf16 masters", fp32, at::kBFloat16, Weights::masters},
           {"adamw bf16 remainders", fp32, at::kBFloat16, Weights::remainders},
           {"adamw bf16 random", fp32, at::kBFloat16, Weights::random},
           {"adamw bf16 moments", with(MomentFormat::bf16), at::kBFloat16, Weights::masters},
           {"adamw average", fp32, at::kFloat, Weights::fp32, /*average=*/true},
           {"sgd", SGD(0.1).clone(), at::kFloat, Weights::fp32},
           {"sgd momentum", SGD(0.1).momentum(0.9).clone(), at::kFloat, Weights::fp32},
           {"lion", Lion(1e-4).clone(), at::kFloat, Weights::fp32},
           {"lamb", LAMB(1e-3).clone(), at::kFloat, Weights::fp32}}) {
    measure_form(form, runs);
  }
  measure_measuring(at::kFloat, "norm and finite fp32", runs);
  measure_measuring(at::kHalf, "norm and finite fp16", runs);
  count_casts();
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::one_thread_main(argc, argv, lockstep::benchmarks::measure);
}
