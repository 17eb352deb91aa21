#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/layers/layer_passes.h>
#include <lockstep/amp/layers/row_kernels.h>
#include <lockstep/amp/layers/tensor_rows.h>

#include <algorithm>

namespace lockstep::amp {

namespace {

constexpr int64_t kChunks = 16;  // partial sums of parameter gradients, for any number of threads

const float* values_of(const at::Tensor& parameter) {
  return parameter.defined() ? parameter.const_data_ptr<float>() : nullptr;
}

/// Runs body(row, weight_part, bias_part) on all rows: chunks of rows in parallel, each with its
/// own partial sums, which are added in order at the end.
template <typename Body>
at::Tensor sum_over_rows(const TensorRows& rows, const Body& body) {
  const int64_t size = rows.size();
  const at::Tensor parts = at::zeros({2, kChunks, size}, at::kFloat);
  auto* data = parts.mutable_data_ptr<float>();
  at::parallel_for(0, kChunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t last = rows.rows() * (chunk + 1) / kChunks;
      for (int64_t row = rows.rows() * chunk / kChunks; row < last; ++row) {
        body(row, data + chunk * size, data + (kChunks + chunk) * size);
      }
    }
  });
  at::Tensor sums = parts.select(1, 0).clone();
  for (int64_t chunk = 1; chunk < kChunks; ++chunk) {
    sums += parts.select(1, chunk);
  }
  return sums;
}

/// Runs body(row, scratch, result) on all rows, a pair of buffers for each thread.
template <typename Body>
void for_each_row(const TensorRows& rows, const Body& body) {
  at::parallel_for(0, rows.rows(), 16, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    std::vector<float> result;
    for (int64_t row = begin; row < end; ++row) {
      body(row, scratch, result);
    }
  });
}

RowNorm* norms_of(const NormPass& pass) {
  return reinterpret_cast<RowNorm*>(pass.norms.mutable_data_ptr<float>());
}

}  // namespace

bool has_passes(const at::Tensor& x) {
  return x.is_cpu() || (x.is_cuda() && cuda_kernels_available());
}

void norm_on_cpu(const NormPass& pass, const at::Tensor& y) {
  RowNorm* const norms = norms_of(pass);
  const TensorRows in(pass.x);
  const TensorRows out(y);
  for_each_row(in, [&](int64_t row, std::vector<float>& scratch, std::vector<float>& result) {
    const float* values = in.read(row, scratch);
    norms[row] = measure_row(values, in.size(), pass.centred, pass.eps);
    float* target = out.target(row, result);
    norm_row(target, values, values_of(pass.weight), values_of(pass.bias), in.size(), norms[row]);
    out.store(row, target);
  });
}

at::Tensor norm_backward_on_cpu(const NormPass& pass, const at::Tensor& dx, const at::Tensor& dy) {
  const RowNorm* const norms = norms_of(pass);
  const TensorRows in(pass.x);
  const TensorRows slopes(dy);
  const TensorRows out(dx);
  return sum_over_rows(in, [&](int64_t row, float* weight_part, float* bias_part) {
    thread_local std::vector<float> values;
    thread_local std::vector<float> gradient;
    thread_local std::vector<float> result;
    float* target = out.target(row, result);
    norm_row_backward(target, slopes.read(row, gradient), in.read(row, values),
                      values_of(pass.weight), pass.weight.defined() ? weight_part : nullptr,
                      pass.bias.defined() ? bias_part : nullptr, in.size(), norms[row],
                      pass.centred);
    out.store(row, target);
  });
}

void bias_gelu_on_cpu(const at::Tensor& y, const at::Tensor& x, const at::Tensor& bias) {
  const TensorRows in(x);
  const TensorRows out(y);
  for_each_row(in, [&](int64_t row, std::vector<float>& scratch, std::vector<float>& result) {
    float* target = out.target(row, result);
    bias_gelu_row(target, in.read(row, scratch), values_of(bias), in.size());
    out.store(row, target);
  });
}

at::Tensor bias_gelu_backward_on_cpu(const at::Tensor& dx, const at::Tensor& dy,
                                     const at::Tensor& x, const at::Tensor& bias) {
  const TensorRows in(x);
  const TensorRows slopes(dy);
  const TensorRows out(dx);
  return sum_over_rows(in, [&](int64_t row, float*, float* bias_part) {
    thread_local std::vector<float> values;
    thread_local std::vector<float> gradient;
    thread_local std::vector<float> result;
    float* target = out.target(row, result);
    bias_gelu_row_backward(target, slopes.read(row, gradient), in.read(row, values),
                           values_of(bias), bias_part, in.size());
    out.store(row, target);
  })[1];
}

at::Tensor cross_entropy_on_cpu(const CrossEntropyPass& pass) {
  const TensorRows in(pass.logits);
  const auto classes = static_cast<float>(in.size());
  const at::Tensor losses = at::zeros({in.rows()}, at::kDouble);
  auto* loss = losses.mutable_data_ptr<double>();
  auto* log_sum = pass.log_sums.mutable_data_ptr<float>();
  const auto* target = pass.targets.const_data_ptr<int64_t>();
  for_each_row(in, [&](int64_t row, std::vector<float>& scratch, std::vector<float>&) {
    if (target[row] != pass.ignore_index) {
      const float* values = in.read(row, scratch);
      const RowSums sums = sum_row(values, in.size());
      log_sum[row] = sums.log_sum_exp;
      loss[row] = sums.log_sum_exp - (1.0 - pass.smoothing) * values[target[row]] -
                  pass.smoothing * (sums.sum / classes);
    }
  });
  double counted = 0.0;
  double total = 0.0;  // in order: the same bits for any number of threads
  for (int64_t row = 0; row < in.rows(); ++row) {
    counted += target[row] != pass.ignore_index ? 1.0 : 0.0;
    total += loss[row];
  }
  *pass.counted.mutable_data_ptr<double>() = counted;
  return at::full({}, total / counted, at::kFloat);
}

void cross_entropy_backward_on_cpu(const CrossEntropyPass& pass, const at::Tensor& gradient,
                                   const at::Tensor& slope) {
  const TensorRows in(pass.logits);
  const TensorRows out(gradient);
  const auto factor =
      static_cast<float>(slope.item<double>() / *pass.counted.const_data_ptr<double>());
  const auto rest = static_cast<float>(pass.smoothing / static_cast<double>(in.size()));
  const auto* target = pass.targets.const_data_ptr<int64_t>();
  const auto* log_sum = pass.log_sums.const_data_ptr<float>();
  for_each_row(in, [&](int64_t row, std::vector<float>& scratch, std::vector<float>& result) {
    float* slopes = out.target(row, result);
    if (target[row] == pass.ignore_index) {
      std::fill_n(slopes, in.size(), 0.0F);
    } else {
      softmax_minus(slopes, in.read(row, scratch), in.size(), log_sum[row], factor, rest);
      slopes[target[row]] -= static_cast<float>(factor * (1.0 - pass.smoothing));
    }
    out.store(row, slopes);
  });
}

}  // namespace lockstep::amp
