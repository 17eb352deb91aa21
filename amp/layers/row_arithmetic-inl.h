// The arithmetic of one row, for a team of lanes. team.sum(size, term) and team.max(size, term)
// join term(i) for i in [0, size); team.each(size, body) calls body(i); x(i) reads an element,
// store(i, value) writes a result. No include guard: row_kernels.cpp includes this file in a
// namespace for each instruction set, cuda/row_work.h once for devices. LOCKSTEP_ROW precedes each
// function.

LOCKSTEP_ROW float normed(float value, const RowNorm& norm) {
  return (value - norm.mean) * norm.inverse;
}

/// 1 / sqrt(square / count + eps), in fp32.
LOCKSTEP_ROW float inverse_deviation(float square, float count, float eps) {
  return 1.0F / std::sqrt(square / count + eps);
}

template <typename Team, typename X>
LOCKSTEP_ROW RowNorm measure_row_with(const Team& team, int64_t size, const X& x, bool centred,
                                      double eps) {
  const auto count = static_cast<float>(size);
  const float mean = centred ? team.sum(size, x) / count : 0.0F;
  const float square = team.sum(size, [=](int64_t i) { return (x(i) - mean) * (x(i) - mean); });
  return {mean, inverse_deviation(square, count, static_cast<float>(eps))};
}

/// slope(i): the gradient of the normed element.
template <typename Team, typename X, typename Slope, typename Store>
LOCKSTEP_ROW void norm_backward_with(const Team& team, int64_t size, const X& x, const Slope& slope,
                                     const Store& store, const RowNorm& norm, bool centred) {
  const RowNorm row = norm;
  const auto count = static_cast<float>(size);
  const float mean_slope = centred ? team.sum(size, slope) / count : 0.0F;
  const float mean_product =
      team.sum(size, [=](int64_t i) { return slope(i) * normed(x(i), row); }) / count;
  team.each(size, [=](int64_t i) {
    store(i, row.inverse * (slope(i) - mean_slope - normed(x(i), row) * mean_product));
  });
}

template <typename Team, typename X>
LOCKSTEP_ROW RowSums sum_row_with(const Team& team, int64_t size, const X& x) {
  const float largest = team.max(size, x);
  const float total = team.sum(size, [=](int64_t i) { return exp_of(x(i) - largest); });
  return {largest + log_of(total), team.sum(size, x)};
}

LOCKSTEP_ROW float softmax_slope(float x, float log_sum_exp, float factor, float rest) {
  return factor * (exp_of(x - log_sum_exp) - rest);
}
