// Every kernel of amp/cuda/*.cu, launched on the emulated device by the library's own launch_*
// functions and recorded (recording.h). replay.py runs the PTX that nvcc made of the same kernels
// on the recorded memory and expects the same bits.
//
//   kernels_launches FILE
#include "launches.h"

#include "test_names.h"
#include "update_samples.h"

#include <lockstep/amp/cuda/launch.h>

#include <cstdio>

namespace lockstep {
namespace {

using namespace amp;

/// Of cases that count work: two rounds of the one processor's threads.
constexpr int64_t kBulk = 32768;

StepState state_of(int64_t update, bool skip = false) {
  StepState state;
  state.gradient_factor = 0.37F;
  state.gradient_limit = 0.5F;
  state.learning_rate_factor = 0.9F;
  state.update = update;
  state.skip = skip;
  return state;
}

/// Values whose conversion is easily wrong come first.
void make_delicate(const Elements& array, int64_t size) {
  const float values[] = {0.0F,          -0.0F,          6.1e-5F,      6.0e-8F,  2.9e-8F,
                          65504.0F,      65519.0F,       65520.0F,     1e-40F,   3.3e38F,
                          1.00048828F,   1.00390625F,    1.001953125F, INFINITY, -INFINITY,
                          -1.000976562F, 1.00146484375F, NAN};
  for (int64_t i = 0; i < size && i < static_cast<int64_t>(std::size(values)); ++i) {
    set_element(array, i, values[i]);
  }
}

void casts(Recording& record) {
  for (const int64_t more : {0, 5}) {
    record.begin("casts", more == 0 ? 3 * kBulk : 0);
    CastBatch batch;
    for (const int64_t size : {kBulk + more, kBulk, int64_t{0}, kBulk}) {
      const Elements to = record.elements(Element::fp16, size);
      batch.add(to, record.elements(Element::fp32, size), size);
    }
    for (int64_t types = 0; types < more * 9 / 5; ++types) {
      const Elements source = record.elements(kTypes[types % 3], 300);
      make_delicate(source, 300);
      batch.add(record.elements(kTypes[types / 3], 300), source, 300);
    }
    well(cuda::launch_casts(batch, 0.37F, nullptr));
  }
}

void measure(Recording& record, const Elements& flat, int64_t size, const MeasuredParts& parts,
             MeasureTotals* totals) {
  const int sums = cuda::measuring_blocks(parts) * parts.count;
  auto* const partial = record.array<double>(sums);
  well(cuda::launch_squares(flat, size, parts, 0, parts.count, partial, nullptr));
  well(cuda::launch_totals(partial, sums, totals, nullptr));
}

void gradients(Recording& record) {
  for (const int64_t size : {int64_t{1}, int64_t{5003}, kBulk}) {
    for (const Element from : kTypes) {
      for (const Element to : kTypes) {
        const bool counts = from == Element::fp32 && to == Element::fp16;
        if (size == kBulk && !counts) {
          continue;
        }
        record.begin("cast", size == kBulk ? size : 0);
        const Elements source = record.elements(from, size);
        if (size != kBulk) {
          make_delicate(source, size);
        }
        well(cuda::launch_cast(record.elements(to, size), source, size, 0.37F, nullptr));
      }
      record.begin("accumulate", size == kBulk && from == Element::fp16 ? size : 0);
      const Elements sum = record.elements(Element::fp32, size);
      well(cuda::launch_accumulate(sum, record.elements(from, size), size, nullptr));
      record.begin("measure", size == kBulk && from == Element::fp16 ? size : 0);
      const Elements flat = record.elements(from, size, -300.0F, 300.0F);
      auto* const totals = record.one(MeasureTotals{3.0, 1.0});
      measure(record, flat, size, {packs_of(size) * kPack}, totals);
      if (size == 1) {
        set_element(flat, 0, INFINITY);
        measure(record, flat, size, {kPack}, totals);
      }
      if (size == 5003) {
        measure(record, flat, size, {2048, 3}, totals);
      }
    }
    if (size == 1) {
      constexpr int64_t kManyBlocks = 300 * 2048 + 3;
      record.begin("measure many blocks");
      const Elements flat = record.elements(Element::fp16, kManyBlocks);
      auto* const totals = record.one(MeasureTotals{});
      measure(record, flat, kManyBlocks, {packs_of(kManyBlocks) * kPack}, totals);
    }
  }
}

/// How a span is kept.
struct Form {
  Element gradient;
  Element updated;
  Element copy;
  Element moments = Element::fp32;
  bool remainder = false;
  bool rounds_randomly = false;
  bool average = false;
};

UpdateArrays span_of(Recording& record, const Form& form, int64_t size) {
  UpdateArrays span;
  span.size = size;
  span.gradient = record.elements(form.gradient, size);
  span.updated = record.elements(form.updated, size);
  span.copy = record.elements(form.copy, size);
  span.moments[0] = record.elements(form.moments, size, -0.1F, 0.1F);
  span.moments[1] = record.elements(form.moments, size, 0.0F, 0.1F);
  if (form.remainder) {
    span.remainder = record.array<int16_t>(size);
    for (int64_t i = 0; i < size; ++i) {
      span.remainder[i] = static_cast<int16_t>(record.random()());
    }
  }
  if (form.average) {
    span.average = record.floats(size, -1.0F, 1.0F);
    span.average_rest = 0.1F;
  }
  span.rounds_randomly = form.rounds_randomly;
  span.stream = 5;
  span.first_element = 642;
  return span;
}

const std::vector<Form>& forms() {
  constexpr Element none = Element::none, fp32 = Element::fp32, fp16 = Element::fp16,
                    bf16 = Element::bf16;
  static const std::vector<Form> all = {
      {fp16, fp32, fp16},
      {fp32, fp32, none},
      {bf16, fp32, bf16},
      {fp16, fp16, none},
      {bf16, bf16, none},
      {bf16, bf16, none, bf16, true},
      {fp16, fp32, fp16, bf16},
      {bf16, bf16, none, fp32, false, true, true},
      {bf16, bf16, none, bf16, true, false, true},
  };
  return all;
}

/// Both launches of one span's update.
template <typename Update>
void launch(Recording& record, const Update& update, const UpdateArrays& span,
            const StepState& state) {
  auto* const coefficients = record.array<Coefficients<Update>>(1);
  const StepState* const own = record.one(state);
  well(cuda::launch_prepare(update, &span, 1, coefficients, own, nullptr));
  well(cuda::launch_update<Update>(span, coefficients, own, nullptr));
}

template <typename Update>
void updates(Recording& record, const Update& update, const char* name) {
  for (const Form& form : forms()) {
    for (const int64_t size : {int64_t{65}, int64_t{2051}}) {
      record.begin(name);
      UpdateArrays span = span_of(record, form, size);
      if (size == 65) {
        span.learning_rate = record.one(0.003);
        span.missed = record.one(int64_t{2});
      }
      for (const int64_t number : {3, 1000}) {
        launch(record, update, span, state_of(number));
      }
      launch(record, update, span, state_of(3, /*skip=*/true));
    }
  }
  for (const int64_t number : {1, 2, 10, 77, 5000, 123457, 100000000}) {  // for pow
    record.begin(name);
    const UpdateArrays span = span_of(record, forms()[1], 9);
    launch(record, update, span, state_of(number));
  }
  for (const size_t form : {0, 5}) {
    record.begin(name, kBulk);
    const UpdateArrays span = span_of(record, forms()[form], kBulk);
    launch(record, update, span, state_of(3));
  }
}

void all_updates(Recording& record) {
#define LOCKSTEP_RECORD(Update) updates(record, testing::sample<Update>(), #Update);
  LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_RECORD)
  for (const int64_t size : {int64_t{65}, int64_t{5003}, kBulk}) {
    for (const size_t form : {7, 8}) {
      record.begin("average", size == kBulk && form == 7 ? size : 0);
      const UpdateArrays span = span_of(record, forms()[form], size);
      well(cuda::launch_average(span, record.one(state_of(3)), nullptr));
      well(cuda::launch_average(span, record.one(state_of(3, /*skip=*/true)), nullptr));
    }
  }
}

void lamb(Recording& record) {
  const LambUpdate update{testing::kAdamSample};
  for (size_t form = 0; form < forms().size(); ++form) {
    const bool counts = form == 0;
    record.begin("lamb", counts ? kBulk : 0);
    LambBatch batch;
    for (const int64_t size :
         counts ? std::vector<int64_t>{kBulk} : std::vector<int64_t>{7, 8193, 640}) {
      batch.add(span_of(record, forms()[form], size));
    }
    const LambScratch scratch{record.array<LambSums>(batch.chunks()),
                              record.array<LambUpdate::Move<float>>(batch.count)};
    auto* const coefficients = record.array<Coefficients<LambUpdate>>(batch.count);
    for (const bool skip : {false, true}) {
      const StepState* const state = record.one(state_of(3, skip));
      well(cuda::launch_prepare(update, batch.spans, batch.count, coefficients, state, nullptr));
      well(cuda::launch_lamb(update, batch, scratch, coefficients, state, nullptr));
    }
  }
}

ScheduleFormula schedule_of(ScheduleFormula::Kind kind) {
  ScheduleFormula formula;
  formula.kind = kind;
  formula.warmup = 4;
  formula.total = kind == ScheduleFormula::Kind::step ? 3 : 20;
  formula.decay = 12;
  formula.peak = 6.5;
  formula.first = 0.04;
  formula.last = 0.1;
  formula.milestone_count = 2;
  formula.milestones[0] = 2;
  formula.milestones[1] = 9;
  return formula;
}

void decisions(Recording& record) {
  for (int kind = 0; kind <= static_cast<int>(ScheduleFormula::Kind::function); ++kind) {
    DecisionRule rule{};
    rule.scaler = {2.0, 0.5, 1.0F, 65536.0F, 2, 2, true, kind % 2 == 0, kind % 3 == 0};
    rule.clip_norm = kind % 2 == 0 ? 0.5 : INFINITY;
    rule.clip_value = 0.25F;
    rule.schedule = schedule_of(static_cast<ScheduleFormula::Kind>(kind));
    record.begin("decision");
    Decision first;
    first.planned = {1, {0.25F, 0.75F}};
    Decision* const decision = record.one(first);
    ScalerState* const scaler = record.one(ScalerState{1024.0F});
    const float* const overflow = record.one(kind == 3 ? 1.0F : 0.0F);
    for (int update = 0; update < 15; ++update) {
      decision->totals = {7.0 + update, update % 5 == 4 ? 1.0 : 0.0};
      decision->failed = update == 3 ? 1.0 : 0.0;
      decision->loss_overflow = update == 7 ? 1.0 : 0.0;
      well(cuda::launch_decide(decision, scaler, rule, nullptr));
      well(cuda::launch_conclude(decision, scaler, rule, nullptr));
    }
    well(cuda::launch_advance(scaler, rule.scaler, overflow, nullptr));
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kernels_launches FILE\n");
    return 2;
  }
  lockstep::testing::Recording record(argv[1]);
  lockstep::emulated_cuda::device().processors = 1;
  lockstep::gradients(record);
  lockstep::casts(record);
  lockstep::all_updates(record);
  lockstep::lamb(record);
  lockstep::decisions(record);
  lockstep::record_layers(record);
  return 0;
}
