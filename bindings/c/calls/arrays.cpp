#include <ATen/ops/from_blob.h>
#include <lockstep/bindings/c/calls/arrays.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lockstep::c {
namespace {

#define LOCKSTEP_CHECK_ARRAY(condition, ...) \
  LOCKSTEP_CHECK_CODE(condition, ExitCode::data, what, ": ", __VA_ARGS__)

at::ScalarType type_of(const lockstep_array& array, const std::string& what) {
  LOCKSTEP_CHECK_ARRAY(array.dtype != LOCKSTEP_REFUSED, array.data == nullptr
                                                            ? "it was refused"
                                                            : static_cast<const char*>(array.data));
  switch (array.dtype) {
    case LOCKSTEP_FLOAT32:
      return at::kFloat;
    case LOCKSTEP_FLOAT64:
      return at::kDouble;
    case LOCKSTEP_INT32:
      return at::kInt;
    case LOCKSTEP_INT64:
      return at::kLong;
    default:
      LOCKSTEP_CHECK_ARRAY(false, "dtype is ", array.dtype, ", which is no lockstep_dtype");
  }
}

/// Whether 64 bits can hold the number of elements and both ends of the array. from_blob() ends the
/// process if its sums overflow. `first` becomes the lowest address.
bool fits_in_memory(at::IntArrayRef shape, at::IntArrayRef strides, int64_t element_bytes,
                    intptr_t& first) {
  int64_t elements = 1;
  int64_t before = 0;  // bytes in front of element [0, 0, ...]
  int64_t behind = element_bytes;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(elements, shape[i], &elements) ||
        __builtin_mul_overflow(strides[i], std::max<int64_t>(shape[i] - 1, 0), &reach) ||
        __builtin_mul_overflow(reach, element_bytes, &reach)) {
      return false;
    }
    int64_t& end = reach < 0 ? before : behind;
    if (__builtin_add_overflow(end, reach, &end)) {
      return false;
    }
  }
  intptr_t last = 0;
  return !__builtin_add_overflow(first, behind, &last) &&
         !__builtin_add_overflow(first, before, &first);
}

/// The strides of the array if all given strides are 0.
std::vector<int64_t> row_major(at::IntArrayRef shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    // Saturates; fits_in_memory() refuses larger sizes.
    if (__builtin_mul_overflow(strides[i], std::max<int64_t>(shape[i], 1), &strides[i - 1])) {
      strides[i - 1] = std::numeric_limits<int64_t>::max();
    }
  }
  return strides;
}

/// The memory of an array, as a tensor whose strides are not negative: LibTorch has no others.
struct Memory {
  at::Tensor tensor;
  std::vector<int64_t> backward;  // dimensions in which the array runs the other way

  at::Tensor in_order(const at::Tensor& other) const {
    return backward.empty() ? other : other.flip(backward);
  }
};

Memory memory_of(const lockstep_array& array, const std::string& what) {
  const at::TensorOptions options = at::TensorOptions(type_of(array, what));
  LOCKSTEP_CHECK_ARRAY(array.rank >= 0 && array.rank <= LOCKSTEP_MAX_RANK, "rank is ", array.rank,
                       "; expected 0 to ", static_cast<int>(LOCKSTEP_MAX_RANK));
  const at::IntArrayRef shape(array.shape, static_cast<size_t>(array.rank));
  const at::IntArrayRef given(array.strides, static_cast<size_t>(array.rank));
  LOCKSTEP_CHECK_ARRAY(
      std::none_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }), "shape is ",
      shape, "; expected no negative number");
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  LOCKSTEP_CHECK_ARRAY(array.data != nullptr || is_empty, "data is NULL");
  const bool is_row_major =
      std::all_of(given.begin(), given.end(), [](int64_t stride) { return stride == 0; });
  std::vector<int64_t> strides = is_row_major ? row_major(shape) : given.vec();
  auto first = reinterpret_cast<intptr_t>(array.data);
  LOCKSTEP_CHECK_ARRAY(
      fits_in_memory(shape, strides, static_cast<int64_t>(options.dtype().itemsize()), first),
      "shape ", shape, " with strides ", at::IntArrayRef(strides),
      " overflows; set every member of the lockstep_array, strides of 0 for a row-major array");
  Memory memory;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] < 0 && shape[i] > 1) {
      memory.backward.push_back(static_cast<int64_t>(i));
    }
    // The stride of a dimension with fewer elements says nothing.
    strides[i] = strides[i] >= 0 ? strides[i] : shape[i] > 1 ? -strides[i] : 1;
  }
  memory.tensor = at::from_blob(reinterpret_cast<void*>(first), shape, strides, options);
  return memory;
}

/// The memory for a result: `tensor` can be copied to it.
Memory target_of(const at::Tensor& tensor, const lockstep_array& array, const std::string& what) {
  Memory memory = memory_of(array, what);
  const at::Tensor& target = memory.tensor;
  const std::string why = detail::why_not_plain(tensor);
  LOCKSTEP_CHECK_ARRAY(why.empty(), "the result ", why);
  LOCKSTEP_CHECK_ARRAY(target.sizes() == tensor.sizes(), "the array has the shape ", target.sizes(),
                       ", the result ", tensor.sizes());
  LOCKSTEP_CHECK_ARRAY(target.is_floating_point() == tensor.is_floating_point(),
                       "the array has the dtype ", target.scalar_type(), ", the result ",
                       tensor.scalar_type());
  for (int64_t i = 0; i < target.dim(); ++i) {
    LOCKSTEP_CHECK_ARRAY(target.size(i) < 2 || target.stride(i) > 0, "strides are ",
                         target.strides(), "; an array to be written has none of 0");
  }
  return memory;
}

std::string name_of(const std::string& what, int i, size_t count) {
  return count == 1 ? what : c10::str(what, " ", i);
}

template <typename Tensor>
std::vector<at::Tensor> each_of(const lockstep_array* arrays, int count, const std::string& what,
                                const Tensor& tensor_of) {
  LOCKSTEP_CHECK_CODE(count >= 1 && arrays != nullptr, ExitCode::data, what, ": there are ", count,
                      " arrays; expected at least 1");
  std::vector<at::Tensor> tensors;
  tensors.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    tensors.push_back(tensor_of(arrays[i], name_of(what, i, static_cast<size_t>(count))));
  }
  return tensors;
}

}  // namespace

at::Tensor borrowed(const lockstep_array& array, const std::string& what) {
  const Memory memory = memory_of(array, what);
  return memory.in_order(memory.tensor);
}

at::Tensor kept(const lockstep_array& array, const std::string& what) {
  const Memory memory = memory_of(array, what);
  LOCKSTEP_CHECK_ARRAY(memory.backward.empty(),
                       "an array that is kept has no negative strides: pass the whole array");
  return memory.tensor;
}

std::vector<at::Tensor> borrowed(const lockstep_array* arrays, int count, const std::string& what) {
  return each_of(arrays, count, what, [](const auto&... array) { return borrowed(array...); });
}

std::vector<at::Tensor> kept(const lockstep_array* arrays, int count, const std::string& what) {
  return each_of(arrays, count, what, [](const auto&... array) { return kept(array...); });
}

std::string described(const std::vector<at::Tensor>& inputs, const at::Tensor& target) {
  std::string text;
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += c10::str(i == 0 ? "" : ", ", name_of("input", static_cast<int>(i), inputs.size()), ": ",
                     inputs[i].scalar_type(), " ", inputs[i].sizes());
  }
  return target.defined()
             ? c10::str(text, ", the target: ", target.scalar_type(), " ", target.sizes())
             : text;
}

void write(const at::Tensor& tensor, const lockstep_array& array, const std::string& what) {
  const Memory memory = target_of(tensor, array, what);
  memory.tensor.copy_(memory.in_order(tensor.detach()));
}

void write(const std::vector<at::Tensor>& tensors, const lockstep_array* arrays, int count) {
  LOCKSTEP_CHECK_CODE(tensors.size() == static_cast<size_t>(std::max(count, 0)), ExitCode::data,
                      "there are ", count, " output arrays, but the model returns ", tensors.size(),
                      " tensors");
  std::vector<Memory> targets;
  for (int i = 0; i < count; ++i) {
    targets.push_back(target_of(tensors[static_cast<size_t>(i)], arrays[i],
                                count == 1 ? std::string("the output") : c10::str("output ", i)));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i].tensor.copy_(targets[i].in_order(tensors[i].detach()));
  }
}

}  // namespace lockstep::c
