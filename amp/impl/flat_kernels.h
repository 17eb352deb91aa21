#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/amp/impl/decision.h>

#include <vector>

namespace lockstep::amp {

/// Operations of a step on flat arrays. Tensors: dense, on one device; elements are taken in memory
/// order, so a channels_last gradient fits its flat array. On a device they run on the current
/// stream and the host never waits.

/// to = from * factor, multiplied in fp32 and rounded once; fp32, fp16, bf16. If either is fp64,
/// multiplied in fp64 and rounded once.
void cast_flat(const at::Tensor& to, const at::Tensor& from, double factor);

/// cast_flat() of to[i] and from[i] for each i. On a device they share launches.
void cast_all_flat(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                   double factor);

/// sum += from, in the dtype of `sum`: fp32, or fp64.
void accumulate_flat(const at::Tensor& sum, const at::Tensor& from);

/// Adds a bucket to `totals`, fp64 elements on the same device: the sum of squares, and the number
/// of buckets with an element that is not finite.
void measure_into(const at::Tensor& flat, const at::Tensor& totals,
                  const MeasuredParts& parts = {});

/// One of the parts of a flat array, which may be empty.
at::Tensor part_of(const at::Tensor& flat, const MeasuredParts& parts, int part);

/// The same in two halves, so that each rank can measure one part of a bucket. `sums`: fp64,
/// measured_sums() elements; measure_part() writes only those of its part, `own`, which is
/// part_of() the bucket. add_measured() adds a bucket with complete sums; the bits are those of
/// measure_into().
int64_t measured_sums(const MeasuredParts& parts, c10::Device device);
void measure_part(const at::Tensor& own, const MeasuredParts& parts, int part,
                  const at::Tensor& sums);
void add_measured(const at::Tensor& sums, const at::Tensor& totals);

}  // namespace lockstep::amp
