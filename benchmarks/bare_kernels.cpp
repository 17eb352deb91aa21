#include "bare_kernels.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace lockstep::benchmarks {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
const hn::ScalableTag<float> floats;
using Floats = hn::Vec<decltype(floats)>;
const int64_t lanes = static_cast<int64_t>(hn::Lanes(floats));

struct Fp32 {
  using Element = float;
  static Floats load(const float* p) { return hn::LoadU(floats, p); }
  static void store(Floats sum, float* p) { hn::StoreU(sum, floats, p); }
};

template <typename Narrow>
struct Narrowed {
  using Element = Narrow;
  static constexpr hn::Rebind<Narrow, decltype(floats)> narrow{};
  static Floats load(const Narrow* p) { return hn::PromoteTo(floats, hn::LoadU(narrow, p)); }
  static void store(Floats sum, Narrow* p) { hn::StoreU(hn::DemoteTo(narrow, sum), narrow, p); }
};

template <typename Type>
void sum_to_both_as(void* a, void* b, int64_t n) {
  auto* left = static_cast<typename Type::Element*>(a);
  auto* right = static_cast<typename Type::Element*>(b);
  for (int64_t i = 0; i < n; i += lanes) {
    const Floats sum = hn::Add(Type::load(left + i), Type::load(right + i));
    Type::store(sum, left + i);
    Type::store(sum, right + i);
  }
}

template <typename Type>
void add_as(const void* from, void* into, int64_t n) {
  const auto* source = static_cast<const typename Type::Element*>(from);
  auto* target = static_cast<typename Type::Element*>(into);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Type::store(hn::Add(Type::load(source + i), Type::load(target + i)), target + i);
  }
  if (i < n) {
    using Padded = std::array<typename Type::Element, hn::MaxLanes(floats)>;
    Padded more = {};
    Padded sum = {};
    std::copy(source + i, source + n, more.begin());
    std::copy(target + i, target + n, sum.begin());
    Type::store(hn::Add(Type::load(more.data()), Type::load(sum.data())), sum.data());
    std::copy(sum.begin(), sum.begin() + (n - i), target + i);
  }
}

template <typename Type>
void add_to_three_as(const void* from, float* a, float* b, float* c, int64_t n) {
  const auto* source = static_cast<const typename Type::Element*>(from);
  for (int64_t i = 0; i < n; i += lanes) {
    const Floats more = Type::load(source + i);
    for (float* target : {a + i, b + i, c + i}) {
      Fp32::store(hn::Add(Fp32::load(target), more), target);
    }
  }
}

}  // namespace

void sum_to_both(c10::ScalarType dtype, void* a, void* b, int64_t n) {
  if (dtype == c10::ScalarType::Half) {
    sum_to_both_as<Narrowed<hwy::float16_t>>(a, b, n);
  } else if (dtype == c10::ScalarType::BFloat16) {
    sum_to_both_as<Narrowed<hwy::bfloat16_t>>(a, b, n);
  } else {
    sum_to_both_as<Fp32>(a, b, n);
  }
}

void add(c10::ScalarType dtype, const void* from, void* into, int64_t n) {
  if (dtype == c10::ScalarType::Half) {
    add_as<Narrowed<hwy::float16_t>>(from, into, n);
  } else if (dtype == c10::ScalarType::BFloat16) {
    add_as<Narrowed<hwy::bfloat16_t>>(from, into, n);
  } else {
    add_as<Fp32>(from, into, n);
  }
}

void add_to_three(c10::ScalarType dtype, const void* from, float* a, float* b, float* c,
                  int64_t n) {
  if (dtype == c10::ScalarType::Half) {
    add_to_three_as<Narrowed<hwy::float16_t>>(from, a, b, c, n);
  } else if (dtype == c10::ScalarType::BFloat16) {
    add_to_three_as<Narrowed<hwy::bfloat16_t>>(from, a, b, c, n);
  } else {
    add_to_three_as<Fp32>(from, a, b, c, n);
  }
}

}  // namespace lockstep::benchmarks
