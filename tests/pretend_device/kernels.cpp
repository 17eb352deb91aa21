// lockstep's kernels for a pretend device: the emulated ones, on the bytes behind the pointers.
// They are compiled in a namespace of their own, so that these can stand in their place.
#include "faults.h"
#include "memory.h"
#include "recording.h"

#define cuda emulated
#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/row_launch.h>
#undef cuda
#include <lockstep/amp/impl/optimizer_list.h>

#include <algorithm>

namespace lockstep::pretend {

std::set<std::string>& launches() {
  static std::set<std::string> names;
  return names;
}

std::function<void(amp::Decision&)>& wrong_decision() {
  static std::function<void(amp::Decision&)> change;
  return change;
}

}  // namespace lockstep::pretend

namespace lockstep::amp::cuda {

using emulated::Problem;

namespace {

using pretend::Access;

/// One launch: says what it does to which memory and finds the bytes.
class Launch {
 public:
  explicit Launch(void* stream, const char* function)
      : stream_(reinterpret_cast<c10::StreamId>(stream)) {
    pretend::launches().insert(function);
  }

  template <typename T>
  T* reads(T* data, int64_t count = 1) const {
    return used(data, count, Access::read);
  }
  template <typename T>
  T* writes(T* data, int64_t count = 1) const {
    return used(data, count, Access::write);
  }
  Elements reads(const Elements& array, int64_t count) const {
    return {used(static_cast<char*>(array.data), count * size_of(array), Access::read), array.type};
  }
  Elements writes(const Elements& array, int64_t count) const {
    return {used(static_cast<char*>(array.data), count * size_of(array), Access::write),
            array.type};
  }
  Rows reads(const Rows& rows) const {
    return {reads(rows.data, rows.rows * rows.size), rows.rows, rows.size};
  }
  Rows writes(const Rows& rows) const {
    return {writes(rows.data, rows.rows * rows.size), rows.rows, rows.size};
  }

  UpdateArrays moves(UpdateArrays arrays) const {
    arrays.gradient = reads(arrays.gradient, arrays.size);
    arrays.updated = writes(arrays.updated, arrays.size);
    arrays.copy = writes(arrays.copy, arrays.size);
    for (Elements& moment : arrays.moments) {
      moment = writes(moment, arrays.size);
    }
    arrays.remainder = writes(arrays.remainder, arrays.size);
    arrays.average = writes(arrays.average, arrays.size);
    arrays.learning_rate = reads(arrays.learning_rate);
    arrays.missed = reads(arrays.missed);
    return arrays;
  }
  UpdateArrays moves_average(UpdateArrays arrays) const {
    arrays.updated = reads(arrays.updated, arrays.size);
    arrays.copy = reads(arrays.copy, arrays.size);
    arrays.remainder = reads(arrays.remainder, arrays.size);
    arrays.average = writes(arrays.average, arrays.size);
    return arrays;
  }
  NormWork reads(NormWork work) const {
    work.norms = writes(work.norms, work.x.rows);  // forward writes them
    work.weight = reads(work.weight, work.x.size);
    work.bias = reads(work.bias, work.x.size);
    work.x = reads(work.x);
    return work;
  }
  BiasGeluWork reads(BiasGeluWork work) const {
    work.bias = reads(work.bias, work.x.size);
    work.x = reads(work.x);
    return work;
  }
  CrossEntropyWork reads(CrossEntropyWork work) const {
    work.targets = reads(work.targets, work.logits.rows);
    work.log_sums = writes(work.log_sums, work.logits.rows);  // forward writes them
    work.logits = reads(work.logits);
    return work;
  }

  Problem run(const std::function<Problem()>& kernel) const {
    const Problem problem = kernel();
    pretend::note([kernel] {
      const Problem late = kernel();
      TORCH_CHECK(late == nullptr, late);
    });
    return problem;
  }

 private:
  static int64_t size_of(const Elements& array) { return array.type == Element::fp32 ? 4 : 2; }
  template <typename T>
  T* used(T* data, int64_t count, Access access) const {
    if (data != nullptr) {
      TORCH_CHECK(pretend::is_device_address(data), "a kernel was given memory of the host");
      pretend::touch(data, static_cast<size_t>(count) * sizeof(T), access, stream_);
    }
    return pretend::on_host(data);
  }

  c10::StreamId stream_;
};

}  // namespace

template <typename Update>
Problem launch_prepare(const Update& update, const UpdateArrays* spans, int64_t count,
                       Coefficients<Update>* coefficients, const StepState* state, void* stream) {
  const Launch launch(stream, __func__);
  std::vector<UpdateArrays> own(spans, spans + count);
  for (UpdateArrays& each : own) {
    each.learning_rate = launch.reads(each.learning_rate);
    each.missed = launch.reads(each.missed);
  }
  return launch.run([=, to = launch.writes(coefficients, count), step = launch.reads(state)] {
    return emulated::launch_prepare(update, own.data(), count, to, step, stream);
  });
}

template <typename Update>
Problem launch_update(const UpdateArrays& arrays, const Coefficients<Update>* coefficients,
                      const StepState* state, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.moves(arrays), from = launch.reads(coefficients),
                     step = launch.reads(state)] {
    return emulated::launch_update<Update>(own, from, step, stream);
  });
}

#define LOCKSTEP_INSTANTIATE(Update)                                                       \
  template Problem launch_prepare(const Update&, const UpdateArrays*, int64_t,             \
                                  Coefficients<Update>*, const StepState*, void*);         \
  template Problem launch_update<Update>(const UpdateArrays&, const Coefficients<Update>*, \
                                         const StepState*, void*);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)

template Problem launch_prepare(const LambUpdate&, const UpdateArrays*, int64_t,
                                Coefficients<LambUpdate>*, const StepState*, void*);

Problem launch_lamb(const LambUpdate& rule, const LambBatch& batch, const LambScratch& scratch,
                    const Coefficients<LambUpdate>* coefficients, const StepState* state,
                    void* stream) {
  const Launch launch(stream, __func__);
  LambBatch own = batch;
  for (int k = 0; k < own.count; ++k) {
    own.spans[k] = launch.moves(own.spans[k]);
  }
  const LambScratch room{launch.writes(scratch.sums, batch.chunks()),
                         launch.writes(scratch.moves, batch.count)};
  return launch.run(
      [=, from = launch.reads(coefficients, batch.count), step = launch.reads(state)] {
        return emulated::launch_lamb(rule, own, room, from, step, stream);
      });
}

Problem launch_average(const UpdateArrays& arrays, const StepState* state, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.moves_average(arrays), step = launch.reads(state)] {
    return emulated::launch_average(own, step, stream);
  });
}

Problem launch_cast(const Elements& to, const Elements& from, int64_t size, float factor,
                    void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, source = launch.reads(from, size), target = launch.writes(to, size)] {
    return emulated::launch_cast(target, source, size, factor, stream);
  });
}

Problem launch_casts(const CastBatch& batch, float factor, void* stream) {
  const Launch launch(stream, __func__);
  CastBatch own = batch;
  for (int k = 0; k < own.count; ++k) {
    CastBatch::Array& array = own.arrays[k];
    const Elements from{const_cast<void*>(array.from), array.from_type};
    array.from = launch.reads(from, array.size).data;
    array.to = launch.writes(Elements{array.to, array.to_type}, array.size).data;
  }
  return launch.run([=] { return emulated::launch_casts(own, factor, stream); });
}

Problem launch_accumulate(const Elements& sum, const Elements& from, int64_t size, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, source = launch.reads(from, size), target = launch.writes(sum, size)] {
    return emulated::launch_accumulate(target, source, size, stream);
  });
}

int measuring_blocks(const MeasuredParts& parts) {
  return emulated::measuring_blocks(parts);
}

Problem launch_squares(const Elements& flat, int64_t size, const MeasuredParts& parts, int first,
                       int count, double* partial, void* stream) {
  const Launch launch(stream, __func__);
  const int blocks = emulated::measuring_blocks(parts);
  // Like the kernel, the launch reads and writes what belongs to its parts alone.
  const int64_t begin = std::min(first * parts.each, size);
  const int64_t end = std::min((first + count) * parts.each, size);
  const int64_t width = flat.type == Element::fp32 ? 4 : 2;
  const Elements own{static_cast<char*>(flat.data) + begin * width, flat.type};
  const Elements source = launch.reads(own, end - begin);
  double* const room = launch.writes(partial + first * blocks, count * blocks);
  return launch.run([=] {
    const Elements whole{static_cast<char*>(source.data) - begin * width, flat.type};
    return emulated::launch_squares(whole, size, parts, first, count, room - first * blocks,
                                    stream);
  });
}

Problem launch_totals(const double* partial, int sums, MeasureTotals* totals, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, source = launch.reads(partial, sums), own = launch.writes(totals)] {
    return emulated::launch_totals(source, sums, own, stream);
  });
}

Problem launch_advance(ScalerState* state, const ScalerRule& rule, const float* overflow,
                       void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.writes(state), flag = launch.reads(overflow)] {
    return emulated::launch_advance(own, rule, flag, stream);
  });
}

Problem launch_decide(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                      void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.writes(decision), scale = launch.reads(scaler)] {
    const Problem problem = emulated::launch_decide(own, scale, rule, stream);
    if (pretend::wrong_decision()) {
      pretend::wrong_decision()(*own);
    }
    return problem;
  });
}

Problem launch_conclude(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                        void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.writes(decision), scale = launch.writes(scaler)] {
    return emulated::launch_conclude(own, scale, rule, stream);
  });
}

int capability(int device) {
  return emulated::capability(device);
}

Problem launch_norm(const NormWork& work, const Rows& y, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.reads(work), to = launch.writes(y)] {
    return emulated::launch_norm(own, to, stream);
  });
}

Problem launch_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, float* parts,
                             float* sums, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.reads(work), to = launch.writes(dx), from = launch.reads(dy),
                     room = launch.writes(parts, 2 * row_parts(dy.rows) * dy.size),
                     all = launch.writes(sums, 2 * dy.size)] {
    return emulated::launch_norm_backward(own, to, from, room, all, stream);
  });
}

Problem launch_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.reads(work), to = launch.writes(y)] {
    return emulated::launch_bias_gelu(own, to, stream);
  });
}

Problem launch_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                  float* parts, float* bias_sum, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.reads(work), to = launch.writes(dx), from = launch.reads(dy),
                     room = launch.writes(parts, row_parts(dx.rows) * dx.size),
                     sum = launch.writes(bias_sum, dx.size)] {
    return emulated::launch_bias_gelu_backward(own, to, from, room, sum, stream);
  });
}

Problem launch_cross_entropy(const CrossEntropyWork& work, double* losses, float* loss,
                             double* counted, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.reads(work), each = launch.writes(losses, work.logits.rows),
                     mean = launch.writes(loss), rows = launch.writes(counted)] {
    return emulated::launch_cross_entropy(own, each, mean, rows, stream);
  });
}

Problem launch_cross_entropy_backward(const CrossEntropyWork& work, const Rows& gradient,
                                      const float* slope, const double* counted, void* stream) {
  const Launch launch(stream, __func__);
  return launch.run([=, own = launch.reads(work), to = launch.writes(gradient),
                     from = launch.reads(slope), rows = launch.reads(counted)] {
    return emulated::launch_cross_entropy_backward(own, to, from, rows, stream);
  });
}

}  // namespace lockstep::amp::cuda
