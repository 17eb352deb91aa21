#include <ATen/core/Tensor.h>
#include <lockstep/runtime/loop/own/operator_flops.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace lockstep::detail {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

int64_t rows_of(const at::Tensor& tensor) {
  return tensor.numel() / std::max<int64_t>(tensor.size(-1), 1);
}

/// The product of two matrices, or of batches of them, that are the inputs `a` and `a` + 1.
OperatorFlops product(size_t a) {
  return [a](Inputs inputs) {
    const at::Tensor left = inputs[a].toTensor();
    return 2 * left.numel() * inputs[a + 1].toTensor().size(-1);
  };
}

struct ConvolutionInputs {
  std::vector<int64_t> stride, padding, dilation;
  bool transposed = false;

  /// `first`: the index of the stride.
  ConvolutionInputs(Inputs inputs, size_t first)
      : stride(inputs[first].toIntVector()),
        padding(inputs[first + 1].toIntVector()),
        dilation(inputs[first + 2].toIntVector()),
        transposed(inputs[first + 3].toBool()) {}

  /// Two for each place of the kernel and each of its elements. 0 for inputs that are refused.
  int64_t flops(const at::Tensor& image, const at::Tensor& weight) const {
    if (image.dim() < 2 || weight.dim() != image.dim() || !fits(image.dim() - 2)) {
      return 0;
    }
    int64_t places = image.size(0);
    for (int64_t d = 2; d < image.dim(); ++d) {
      const auto i = static_cast<size_t>(d - 2);
      const auto of = [&](const std::vector<int64_t>& each) {
        return each.size() == 1 ? each[0] : each[i];
      };
      const int64_t reach = of(dilation) * (weight.size(d) - 1) + 1;
      places *=
          transposed ? image.size(d) : (image.size(d) + 2 * of(padding) - reach) / of(stride) + 1;
    }
    return 2 * places * weight.numel();
  }

  bool fits(int64_t dimensions) const {
    const auto is_right = [&](const std::vector<int64_t>& each) {
      return each.size() == 1 || each.size() == static_cast<size_t>(dimensions);
    };
    return is_right(stride) && is_right(padding) && is_right(dilation) &&
           std::all_of(stride.begin(), stride.end(), [](int64_t step) { return step > 0; });
  }
};

int64_t convolution(Inputs inputs) {
  return ConvolutionInputs(inputs, 3).flops(inputs[0].toTensor(), inputs[1].toTensor());
}

/// The gradients of image and weight cost as much as the forward each.
int64_t convolution_backward(Inputs inputs) {
  const auto mask = inputs[10].toBoolList();
  const int64_t each =
      ConvolutionInputs(inputs, 4).flops(inputs[1].toTensor(), inputs[2].toTensor());
  return each * ((mask[0] ? 1 : 0) + (mask[1] ? 1 : 0));
}

/// Query, key and value begin at input `first`: [batch, heads, length, width]. `of_scores`,
/// `of_values`: how many products have the width of the query, and how many that of the value.
OperatorFlops attention(size_t first, int64_t of_scores, int64_t of_values) {
  return [=](Inputs inputs) {
    const at::Tensor query = inputs[first].toTensor();
    const at::Tensor value = inputs[first + 2].toTensor();
    const int64_t scores = rows_of(query) * inputs[first + 1].toTensor().size(-2);
    return 2 * scores * (of_scores * query.size(-1) + of_values * value.size(-1));
  };
}

/// One layer in one direction: the weights of input and hidden state follow the input.
OperatorFlops onednn_layer(int64_t passes) {
  return [passes](Inputs inputs) {
    const at::Tensor input = inputs[0].toTensor();
    return 2 * passes * rows_of(input) *
           (inputs[1].toTensor().numel() + inputs[2].toTensor().numel());
  };
}

/// All layers: the matrices among a list of weights.
OperatorFlops cudnn_layers(int64_t passes) {
  return [passes](Inputs inputs) {
    int64_t elements = 0;
    for (const at::Tensor& weight : inputs[1].toTensorVector()) {
      elements += weight.dim() > 1 ? weight.numel() : 0;
    }
    return 2 * passes * rows_of(inputs[0].toTensor()) * elements;
  };
}

}  // namespace

const OperatorFlops* flops_of(std::string_view name) {
  // The backward of attention computes the scores again.
  static const std::unordered_map<std::string_view, OperatorFlops> all = {
      {"aten::mm", product(0)},
      {"aten::addmm", product(1)},
      {"aten::_addmm_activation", product(1)},
      {"aten::bmm", product(0)},
      {"aten::baddbmm", product(1)},
      {"aten::_scaled_mm", product(0)},
      {"aten::convolution", convolution},
      {"aten::_convolution", convolution},  // traced TorchScript calls it directly
      {"aten::convolution_backward", convolution_backward},
      {"aten::_scaled_dot_product_flash_attention", attention(0, 1, 1)},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention(0, 1, 1)},
      {"aten::_scaled_dot_product_efficient_attention", attention(0, 1, 1)},
      {"aten::_scaled_dot_product_cudnn_attention", attention(0, 1, 1)},
      {"aten::_scaled_dot_product_flash_attention_backward", attention(1, 3, 2)},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention(1, 3, 2)},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention(1, 3, 2)},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention(1, 3, 2)},
      {"aten::mkldnn_rnn_layer", onednn_layer(1)},
      {"aten::mkldnn_rnn_layer_backward", onednn_layer(2)},
      {"aten::_cudnn_rnn", cudnn_layers(1)},
      {"aten::_cudnn_rnn_backward", cudnn_layers(2)},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace lockstep::detail
