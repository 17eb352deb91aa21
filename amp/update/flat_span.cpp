#include <ATen/ops/zeros.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep::amp {

namespace {

Element element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return Element::fp32;
    case c10::ScalarType::Half:
      return Element::fp16;
    case c10::ScalarType::BFloat16:
      return Element::bf16;
    default:
      throw Error(c10::str("kernels in device memory know Float, Half and BFloat16, not ", dtype));
  }
}

/// Bytes by which the offset in a page grows from moment to moment. Large arrays begin at nearly
/// the same offset; if they are read and written side by side, a load waits for a store whose
/// address has the same lower 12 bits ("4K aliasing").
constexpr int64_t kMomentOffset = 1088;

bool is_wire_dtype(c10::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

void check_array(const char* name, const at::Tensor& array, const at::Tensor& like) {
  LOCKSTEP_CHECK(array.defined(), "FlatSpan: ", name, " is undefined");
  LOCKSTEP_CHECK(array.dim() == 1 && array.is_contiguous() && array.numel() == like.numel() &&
                     array.device() == like.device(),
                 "FlatSpan: ", name, " has sizes ", array.sizes(), " strides ", array.strides(),
                 " on ", array.device().str(), ", expected a contiguous array of ", like.numel(),
                 " elements on ", like.device().str());
}

void check_dtype(const char* name, const at::Tensor& array, bool good, const char* expected) {
  LOCKSTEP_CHECK(good, "FlatSpan: ", name, " is ", array.scalar_type(), ", expected ", expected);
}

void check_moments(const FlatSpan& span, int moments) {
  LOCKSTEP_CHECK(static_cast<int>(span.moments.size()) == moments, "FlatSpan: found ",
                 span.moments.size(), " moments, this optimizer has ", moments);
  for (const at::Tensor& moment : span.moments) {
    check_array("moment", moment, span.gradient);
    const at::ScalarType dtype = moment.scalar_type();
    check_dtype("moment", moment, dtype == at::kFloat || dtype == at::kBFloat16,
                "Float or BFloat16");
  }
}

void check_number(const char* name, const at::Tensor& number, at::ScalarType dtype,
                  const at::Tensor& like) {
  LOCKSTEP_CHECK(!number.defined() || (number.numel() == 1 && number.scalar_type() == dtype &&
                                       number.device() == like.device()),
                 "FlatSpan: ", name, " must be one ", dtype, " element on ", like.device().str());
}

/// For a span with an fp64 master.
void check_double_span(const FlatSpan& span, int moments) {
  const auto check = [&](const char* name, const at::Tensor& array) {
    check_array(name, array, span.gradient);
    check_dtype(name, array, array.scalar_type() == at::kDouble, "Double, as the master is");
  };
  LOCKSTEP_CHECK(span.gradient.is_cpu(), "FlatSpan: the master is Double on ",
                 span.gradient.device().str(), "; fp64 is updated in host memory only");
  check_dtype(
      "gradient", span.gradient,
      span.gradient.scalar_type() == at::kDouble || span.gradient.scalar_type() == at::kFloat,
      "Double or Float, since the master is Double");
  check("master", span.master);
  LOCKSTEP_CHECK(!span.weight.defined() && !span.remainder.defined() && !span.rounds_randomly,
                 "FlatSpan: a Double master is the weight itself, so there is no other");
  LOCKSTEP_CHECK(static_cast<int>(span.moments.size()) == moments, "FlatSpan: found ",
                 span.moments.size(), " moments, this optimizer has ", moments,
                 ", which are Double");
  for (const at::Tensor& moment : span.moments) {
    check("moment", moment);
  }
  if (span.average.defined()) {
    check("average", span.average);
  }
  LOCKSTEP_CHECK(
      !span.gradient_scale.defined() ||
          (span.gradient_scale.numel() == 2 && span.gradient_scale.is_cpu() &&
           span.gradient_scale.is_contiguous() && span.gradient_scale.scalar_type() == at::kDouble),
      "FlatSpan: gradient_scale must be two Double elements in host memory");
  check_number("learning_rate", span.learning_rate, at::kDouble, span.gradient);
  check_number("missed", span.missed, at::kLong, span.gradient);
}

}  // namespace

bool is_double(const FlatSpan& span) {
  return span.master.defined() && span.master.scalar_type() == at::kDouble;
}

void check_span(const FlatSpan& span, int moments) {
  check_array("gradient", span.gradient, span.gradient);
  if (is_double(span)) {
    check_double_span(span, moments);
    return;
  }
  check_dtype("gradient", span.gradient, is_wire_dtype(span.gradient.scalar_type()),
              "Float, Half or BFloat16");
  LOCKSTEP_CHECK(span.master.defined() || span.weight.defined(),
                 "FlatSpan: neither master nor weight is defined, so there is nothing to update");
  if (span.master.defined()) {
    check_array("master", span.master, span.gradient);
    check_dtype("master", span.master, span.master.scalar_type() == at::kFloat, "Float");
  }
  if (span.weight.defined()) {
    check_array("weight", span.weight, span.gradient);
    check_dtype("weight", span.weight, is_wire_dtype(span.weight.scalar_type()),
                "Float, Half or BFloat16");
  }
  check_moments(span, moments);
  if (span.remainder.defined()) {
    check_array("remainder", span.remainder, span.gradient);
    check_dtype("remainder", span.remainder, span.remainder.scalar_type() == at::kShort, "Short");
  }
  if (span.average.defined()) {
    check_array("average", span.average, span.gradient);
    check_dtype("average", span.average, span.average.scalar_type() == at::kFloat, "Float");
  }
  check_number("learning_rate", span.learning_rate, at::kDouble, span.gradient);
  check_number("missed", span.missed, at::kLong, span.gradient);
  const bool lone_brain = !span.master.defined() && span.weight.scalar_type() == at::kBFloat16;
  LOCKSTEP_CHECK(lone_brain || !(span.remainder.defined() || span.rounds_randomly),
                 "FlatSpan: a remainder, and random rounding, belong to a BFloat16 weight without "
                 "a master");
  LOCKSTEP_CHECK(!span.remainder.defined() || !span.rounds_randomly,
                 "FlatSpan: a weight with a remainder is exact, so it cannot be rounded randomly");
  LOCKSTEP_CHECK(span.first_element % 2 == 0, "FlatSpan: first_element is ", span.first_element,
                 ", it must be even: begin spans at multiples of 64 elements");
}

void check_cuda_span(const FlatSpan& span) {
  const auto check = [](const char* name, const at::Tensor& array) {
    constexpr uintptr_t kAlignment = 16;
    LOCKSTEP_CHECK(
        !array.defined() || array.numel() == 0 ||
            reinterpret_cast<uintptr_t>(array.const_data_ptr()) % kAlignment == 0,
        "FlatSpan: ", name, " begins at an address that is no multiple of ", kAlignment,
        ", as updates in device memory need it; begin spans at multiples of 64 elements");
  };
  check("gradient", span.gradient);
  check("master", span.master);
  check("weight", span.weight);
  check("remainder", span.remainder);
  check("average", span.average);
  for (const at::Tensor& moment : span.moments) {
    check("moment", moment);
  }
}

StepState step_of(const FlatSpan& span, const StepState& step) {
  const bool has_rate = span.learning_rate.defined();
  const bool has_missed = span.missed.defined();
  return own_step(step, has_rate ? span.learning_rate.const_data_ptr<double>() : nullptr,
                  has_missed ? span.missed.const_data_ptr<int64_t>() : nullptr);
}

Elements elements_of(const at::Tensor& flat) {
  return {const_cast<void*>(flat.const_data_ptr()), element_of(flat.scalar_type())};
}

template <typename T>
SpanArrays<T> arrays_of(const FlatSpan& span) {
  const auto elements = [](const at::Tensor& flat) {
    return flat.scalar_type() == at::kDouble ? Elements{flat.mutable_data_ptr(), Element::fp64}
                                             : elements_of(flat);
  };
  SpanArrays<T> arrays;
  arrays.gradient = elements(span.gradient);
  arrays.updated = elements(updated_array(span));
  if (span.master.defined() && span.weight.defined()) {
    arrays.copy = elements(span.weight);
  }
  for (size_t m = 0; m < span.moments.size(); ++m) {
    arrays.moments[m] = elements(span.moments[m]);
  }
  if (span.remainder.defined()) {
    arrays.remainder = span.remainder.mutable_data_ptr<int16_t>();
  }
  if (span.average.defined()) {
    arrays.average = span.average.mutable_data_ptr<T>();
    arrays.average_rest = static_cast<T>(span.average_rest);
  }
  arrays.rounds_randomly = span.rounds_randomly;
  arrays.stream = span.stream;
  arrays.first_element = span.first_element;
  arrays.size = span.gradient.numel();
  if (span.learning_rate.defined()) {
    arrays.learning_rate = span.learning_rate.const_data_ptr<double>();
  }
  if (span.missed.defined()) {
    arrays.missed = span.missed.const_data_ptr<int64_t>();
  }
  return arrays;
}
template SpanArrays<float> arrays_of(const FlatSpan& span);
template SpanArrays<double> arrays_of(const FlatSpan& span);

FlatSpan narrowed(const FlatSpan& span, int64_t begin, int64_t size) {
  const auto part = [&](const at::Tensor& flat) {
    return flat.defined() ? flat.narrow(0, begin, size) : flat;
  };
  FlatSpan result = span;
  for (at::Tensor* flat :
       {&result.gradient, &result.master, &result.weight, &result.remainder, &result.average}) {
    *flat = part(*flat);
  }
  for (at::Tensor& moment : result.moments) {
    moment = part(moment);
  }
  result.first_element += begin;
  return result;
}

void add_moments(FlatSpan& span, const UpdateRule& rule) {
  static constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};
  const at::ScalarType dtype =
      is_double(span) ? at::kDouble : kTypes[static_cast<int>(rule.moment_format())];
  const int64_t size = span.gradient.numel();
  const int64_t step =
      span.gradient.is_cpu() ? kMomentOffset / static_cast<int64_t>(c10::elementSize(dtype)) : 0;
  for (int i = 0; i < rule.moments(); ++i) {
    const int64_t offset = (i + 1) * step;
    span.moments.push_back(
        at::zeros({offset + size}, span.gradient.options().dtype(dtype)).narrow(0, offset, size));
  }
}

std::string describe_moments(MomentFormat format) {
  static constexpr const char* kNames[] = {"", " moments bf16"};
  return kNames[static_cast<int>(format)];
}

const at::Tensor& updated_array(const FlatSpan& span) {
  return span.master.defined() ? span.master : span.weight;
}

}  // namespace lockstep::amp
