// Every differentiable operator that the tests of LibTorch's wheel describe, in checkpointed
// regions, under OffloadActivations and under a budget: its gradients have the bits of the plain
// run. operators.py writes the operators, their samples and Python's gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operator = std::function<Tensors(Tensors)>;

struct Sample {
  std::string name;
  Tensors inputs;
  std::vector<bool> needs;  // which inputs need a gradient
  Tensors seeds;            // gradients of the outputs that have one
  Tensors python;           // gradients of the inputs that need one
};

const char* const kVaries = "the bits of the plain run vary";

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) {
    return false;
  }
  if (!a.defined()) {
    return true;
  }
  const auto plain = [](const at::Tensor& t) {
    return t._is_zerotensor() ? at::zeros(t.sizes(), t.options())
                              : t.detach().resolve_conj().resolve_neg().contiguous();
  };
  const at::Tensor x = plain(a), y = plain(b);
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         (x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

bool same_bits(const Tensors& a, const Tensors& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = same_bits(a[i], b[i]);
  }
  return same;
}

/// An undefined gradient counts as zeros.
bool is_close(const Tensors& ours, const Tensors& others) {
  bool close = ours.size() == others.size();
  for (std::size_t i = 0; close && i < ours.size(); ++i) {
    const at::Tensor our =
        ours[i].defined() || !others[i].defined() ? ours[i] : at::zeros_like(others[i]);
    close = !our.defined() || (our.sizes() == others[i].sizes() &&
                               torch::allclose(our, others[i], 1e-4, 1e-5, /*equal_nan=*/true));
  }
  return close;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Sample> read_samples(const std::string& folder) {
  const std::string file = read_file(folder + "/cases.pt");
  const auto list = torch::jit::pickle_load({file.begin(), file.end()}).toList();
  std::vector<Sample> samples;
  for (const c10::IValue& item : list.vec()) {
    const auto fields = item.toGenericDict();
    const auto tensors = [&](const char* field) {
      Tensors all;
      for (const c10::IValue& value : fields.at(field).toList().vec()) {
        all.push_back(value.toTensor());
      }
      return all;
    };
    Sample sample{fields.at("name").toStringRef(),
                  tensors("inputs"),
                  {},
                  tensors("seeds"),
                  tensors("gradients")};
    for (const c10::IValue& need : fields.at("needs").toList().vec()) {
      sample.needs.push_back(need.toBool());
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

/// The traced operator, which LibTorch's interpreter calls by its schema through the dispatcher.
Operator load_operator(const std::string& path) {
  return [module = torch::jit::load(path)](Tensors inputs) mutable {
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    const c10::IValue result = module.forward({inputs.begin(), inputs.end()});
    Tensors outputs;
    for (const c10::IValue& output : result.toTupleRef().elements()) {
      outputs.push_back(output.toTensor());
    }
    return outputs;
  };
}

struct Leaves {
  Tensors inputs;
  Tensors wanted;
};

Leaves leaves_of(const Sample& sample) {
  Leaves leaves;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    leaves.inputs.push_back(sample.inputs[i].clone().set_requires_grad(sample.needs[i]));
    if (sample.needs[i]) {
      leaves.wanted.push_back(leaves.inputs.back());
    }
  }
  return leaves;
}

Tensors differentiable(const Tensors& outputs) {
  Tensors some;
  for (const at::Tensor& output : outputs) {
    if (output.requires_grad()) {
      some.push_back(output);
    }
  }
  return some;
}

/// The outputs with a gradient, the gradients of the inputs, and the inputs, which running
/// statistics change.
Tensors run(const Sample& sample, const Operator& op) {
  torch::manual_seed(42);
  const Leaves leaves = leaves_of(sample);
  Tensors results = differentiable(op(leaves.inputs));
  const Tensors gradients =
      torch::autograd::grad(results, leaves.wanted, sample.seeds, {}, false, true);
  for (at::Tensor& result : results) {
    result = result.detach();
  }
  results.insert(results.end(), gradients.begin(), gradients.end());
  for (const at::Tensor& input : leaves.inputs) {
    results.push_back(input.detach());
  }
  return results;
}

Tensors gradients_of(const Sample& sample, const Tensors& results) {
  const auto first = results.begin() + static_cast<std::ptrdiff_t>(sample.seeds.size());
  return {first, first + static_cast<std::ptrdiff_t>(sample.python.size())};
}

/// So that a region holds the memory of what the operator takes.
Tensors copies(const Tensors& inputs) {
  Tensors all;
  for (const at::Tensor& input : inputs) {
    all.push_back(input.clone());
  }
  return all;
}

at::Tensor loss_of(const Tensors& outputs, const Tensors& seeds) {
  at::Tensor loss;
  const Tensors some = differentiable(outputs);
  for (std::size_t i = 0; i < some.size(); ++i) {
    const at::Tensor term = at::real(some[i] * seeds[i]).sum();
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

/// The operator as the second of four stages, of the first input that needs a gradient.
Tensors run_in_chain(const Sample& sample, const Operator& op, bool has_budget) {
  torch::manual_seed(42);
  const Leaves leaves = leaves_of(sample);
  const auto operand = [&]() -> std::size_t {
    std::size_t place = 0;
    while (!sample.needs[place]) {
      ++place;
    }
    return place;
  }();
  const auto stage = [inputs = leaves.inputs, op, operand, seeds = sample.seeds](at::Tensor x) {
    Tensors all = inputs;
    all[operand] = std::move(x);
    return loss_of(op(all), seeds);
  };
  const PlannedChain chain({{"copy", [](const at::Tensor& x) { return x.clone(); }},
                            {"operator", stage},
                            {"half", [](const at::Tensor& x) { return x * 0.5; }},
                            {"end", [](const at::Tensor& x) { return x + 1; }}});
  if (has_budget) {
    chain.set_budget("automatic");
  }
  const at::Tensor loss = chain(leaves.inputs[operand]);
  return torch::autograd::grad({loss}, leaves.wanted, {}, {}, false, true);
}

struct Way {
  std::string name;
  std::function<Tensors(const Sample&, const Operator&)> ours;
  std::function<Tensors(const Sample&, const Operator&)> plain;
};

std::vector<Way> ways() {
  const auto of_copies = [](const Operator& op) {
    return [op](const Tensors& inputs) { return op(copies(inputs)); };
  };
  return {
      {"checkpoint",
       [](const Sample& sample, const Operator& op) {
         return run(sample, [&](const Tensors& in) { return checkpoint(op, in); });
       },
       run},
      {"checkpoint that makes its operands",
       [=](const Sample& sample, const Operator& op) {
         return run(sample, [&](const Tensors& in) { return checkpoint(of_copies(op), in); });
       },
       [=](const Sample& sample, const Operator& op) { return run(sample, of_copies(op)); }},
      {"OffloadActivations",
       [](const Sample& sample, const Operator& op) {
         return run(sample, [&](Tensors in) {
           const OffloadActivations offload(Tensors{}, OffloadOptions().min_bytes(0));
           return op(std::move(in));
         });
       },
       run},
      {"budget",
       [](const Sample& sample, const Operator& op) { return run_in_chain(sample, op, true); },
       [](const Sample& sample, const Operator& op) { return run_in_chain(sample, op, false); }}};
}

/// Whether the plain run itself has other bits from run to run, as some of LAPACK's operators have.
bool plain_varies(const Way& way, const Sample& sample, const Operator& op) {
  const Tensors first = way.plain(sample, op);
  std::vector<at::Tensor> moves_the_heap;
  bool varies = false;
  for (int64_t i = 0; !varies && i < 100; ++i) {
    moves_the_heap.push_back(at::ones({1 + 7 * i}));
    varies = !same_bits(first, way.plain(sample, op));
  }
  return varies;
}

/// Empty if all is well.
std::string fault_of(const Way& way, const Sample& sample, const Operator& op) {
  try {
    const Tensors plain = way.plain(sample, op);
    const Tensors ours = way.ours(sample, op);
    if (same_bits(plain, ours)) {
      return "";
    }
    return plain_varies(way, sample, op) && is_close(plain, ours)
               ? kVaries
               : "other bits than the plain run's";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
}

/// Instance norm writes the running statistics that it is given, here inputs of the region.
bool is_refused(const Way& way, const Sample& sample) {
  return way.name == "checkpoint" && sample.name == "nn_functional_instance_norm";
}

void print(const std::string& title, const std::set<std::string>& names) {
  std::cout << title << " (" << names.size() << "):";
  for (const std::string& name : names) {
    std::cout << " " << name << ";";
  }
  std::cout << "\n";
}

TEST(Operators, GradientsHaveThePlainBitsInRegionsOffloadAndBudgets) {
  const TemporaryFolder folder;
  const std::string command =
      "'" LOCKSTEP_TEST_PYTHON "' -B '" LOCKSTEP_TEST_OPERATORS "' '" + folder.path() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::vector<Sample> samples = read_samples(folder.path());
  std::set<std::string> operators, forms, varying, others_than_python;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    const Operator op = load_operator(folder.file(std::to_string(i) + ".pt"));
    for (const Way& way : ways()) {
      const std::string fault = fault_of(way, sample, op);
      if (fault == kVaries) {
        varying.insert(sample.name);
      } else if (is_refused(way, sample)) {
        EXPECT_THAT(fault, HasSubstr("is modified in place inside the region")) << sample.name;
      } else {
        EXPECT_EQ(fault, "") << sample.name << " in " << way.name;
      }
    }
    if (!is_close(gradients_of(sample, run(sample, op)), sample.python)) {
      others_than_python.insert(sample.name);
    }
    const bool in_place = sample.name.find(", in place") != std::string::npos;
    (in_place ? forms : operators).insert(sample.name);
  }
  print("run", operators);
  print("run in place", forms);
  print("plain run varies", varying);
  print("gradients far from Python's", others_than_python);
  std::cout << "skipped:\n" << read_file(folder.file("skipped.txt"));
  EXPECT_GE(operators.size(), 400u);
  EXPECT_TRUE(others_than_python.empty());
}

}  // namespace
}  // namespace lockstep::testing
