#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/span_arrays.h>
#include <lockstep/amp/impl/update_rule.h>

#include <string>

namespace lockstep::amp {

/// Throws Error naming the array of `span` that does not fit FlatSpan's description.
void check_span(const FlatSpan& span, int moments);

/// Throws Error that names an array which kernels cannot access 16 bytes at a time. `span` has
/// passed check_span().
void check_cuda_span(const FlatSpan& span);

/// The array that the optimizer updates: the master; without one, the weight.
const at::Tensor& updated_array(const FlatSpan& span);

/// True if the master is fp64.
bool is_double(const FlatSpan& span);

/// `step` with the learning rate and the number of updates of a span in host memory.
StepState step_of(const FlatSpan& span, const StepState& step);

/// A flat tensor as a pointer for device code. Throws Error for dtypes but Float, Half and
/// BFloat16.
Elements elements_of(const at::Tensor& flat);

/// The arrays of a span that has passed check_span(). T: double if is_double(span), else float.
template <typename T>
SpanArrays<T> arrays_of(const FlatSpan& span);

/// Moves `span.average`, if there is one, towards the present weights; does nothing if state->skip.
/// For weights that no UpdateRule updates, since a rule does this itself. Host or device memory,
/// `state` in the memory of the span.
void move_average(const FlatSpan& span, const StepState* state);

/// The elements from `begin` on, as aliases.
FlatSpan narrowed(const FlatSpan& span, int64_t begin, int64_t size);

/// Adds the rule's moments, all zero, to `span`, whose other arrays are set. In host memory they
/// begin at different offsets in a page.
void add_moments(FlatSpan& span, const UpdateRule& rule);

/// " moments bf16", empty for fp32.
std::string describe_moments(MomentFormat format);

}  // namespace lockstep::amp
