// Under an activation budget the modules of the model's Sequential stay what they are: a forward
// that reaches them by any other way than Sequential::forward computes what it computes without.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

using torch::nn::AnyModule;
using torch::nn::BatchNorm1d;
using torch::nn::Dropout;
using torch::nn::DropoutImpl;
using torch::nn::Linear;
using torch::nn::LinearImpl;
using torch::nn::Sequential;

constexpr int64_t width = 16;

/// Doubles its input, and counts how often backward runs it again.
struct Doubler : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    recomputed += is_recomputing() ? 1 : 0;
    return weight * x * 2;
  }
  at::Tensor weight = register_parameter("weight", torch::ones({width}));
  int64_t recomputed = 0;
};

Sequential new_sequential() {
  torch::manual_seed(21);
  Sequential net;
  for (int block = 0; block < 3; ++block) {
    net->push_back(Linear(width, width));
    net->push_back(Dropout(0.3));
    net->push_back(BatchNorm1d(width));
  }
  return net;
}

/// A model around a Sequential, with a forward of its own.
struct Around : torch::nn::Module {
  using Forward = std::function<at::Tensor(Sequential&, at::Tensor)>;
  explicit Around(Forward forward) : walk(std::move(forward)) {
    layers = register_module("layers", new_sequential());
    to(testing::device());
  }
  at::Tensor forward(at::Tensor x) { return walk(layers, std::move(x)); }
  Sequential layers{nullptr};
  Forward walk;
};

at::Tensor input_of(int64_t step) {
  torch::manual_seed(100 + static_cast<uint64_t>(step * 10 + runtime().rank()));
  return testing::randn({24, width});
}

std::vector<at::Tensor> trained(const Around::Forward& forward, const TrainerOptions& options) {
  const auto model = std::make_shared<Around>(forward);
  Trainer trainer(runtime(), model, AdamW(1e-2), options);
  for (int64_t step = 0; step < 4; ++step) {
    trainer.step([&]() -> Loss { return model->forward(input_of(step)).square().mean(); });
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) {
    result.push_back(parameter.detach().clone());
  }
  for (const at::Tensor& buffer : model->buffers()) {
    result.push_back(buffer.clone());
  }
  return result;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = at::equal(a[i], b[i]);
  }
  return same;
}

at::Tensor by_type(Sequential& layers, size_t index, const at::Tensor& x) {
  switch (index % 3) {
    case 0: {
      AnyModule& module = *(layers->begin() + static_cast<std::ptrdiff_t>(index));
      return index == 0 ? layers->at<LinearImpl>(0).forward(x) : module.get<Linear>()(x);
    }
    case 1:
      return layers->ptr<DropoutImpl>(index)->forward(x);
    default:
      return layers->ptr(index)->as<BatchNorm1d>()->forward(x);
  }
}

at::Tensor by_pointer(const std::shared_ptr<torch::nn::Module>& module, const at::Tensor& x) {
  if (auto* linear = module->as<Linear>()) {
    return linear->forward(x);
  }
  if (auto* dropout = module->as<Dropout>()) {
    return dropout->forward(x);
  }
  return module->as<BatchNorm1d>()->forward(x);
}

std::vector<std::pair<std::string, Around::Forward>> walks() {
  return {
      {"its own forward", [](Sequential& s, const at::Tensor& x) { return s->forward(x); }},
      {"iteration",
       [](Sequential& s, at::Tensor x) {
         for (AnyModule& layer : *s) {
           x = layer.forward(x).tanh();
         }
         return x;
       }},
      {"iteration with nothing between",
       [](Sequential& s, at::Tensor x) {
         for (AnyModule& layer : *s) {
           x = layer.forward(x);
         }
         return x;
       }},
      {"copies of the modules",
       [](Sequential& s, at::Tensor x) {
         Sequential same = s;
         for (AnyModule layer : *same) {
           x = layer.any_forward(x).get<at::Tensor>() + 0.5;
         }
         return x;
       }},
      {"at, ptr<> and get<>",
       [](Sequential& s, at::Tensor x) {
         for (size_t i = 0; i < s->size(); ++i) {
           x = by_type(s, i, x).tanh();
         }
         return x;
       }},
      {"ptr()->as<>",
       [](Sequential& s, at::Tensor x) {
         for (size_t i = 0; i < s->size(); ++i) {
           x = by_pointer(i % 2 == 0 ? s->ptr(i) : s[i], x).tanh();
         }
         return x;
       }},
      {"children",
       [](Sequential& s, at::Tensor x) {
         for (const auto& child : s->named_children()) {
           x = by_pointer(child.value(), x).tanh();
         }
         return x;
       }},
      {"features of the fourth layer",
       [](Sequential& s, at::Tensor x) {
         auto layer = s->begin();
         for (int i = 0; i < 4; ++i, ++layer) {
           x = layer->forward(x);
         }
         return x;
       }},
      {"the layers behind the fourth",
       [](Sequential& s, at::Tensor x) {
         for (auto layer = s->begin() + 4; layer != s->end(); ++layer) {
           x = layer->forward(x);
         }
         return x;
       }},
      {"backwards",
       [](Sequential& s, at::Tensor x) {
         for (auto layer = s->end(); layer != s->begin();) {
           x = (--layer)->forward(x);
         }
         return x;
       }},
      {"skips",
       [](Sequential& s, at::Tensor x) {
         std::vector<at::Tensor> skips;
         for (size_t i = 0; i < 5; ++i) {
           x = (s->begin() + static_cast<std::ptrdiff_t>(i))->forward(x);
           skips.push_back(x);
         }
         for (size_t i = 5; i < s->size(); ++i) {
           x = (s->begin() + static_cast<std::ptrdiff_t>(i))->forward(x + skips[8 - i]);
         }
         return x + skips[4];
       }},
      {"concatenated skips that change the width",
       [](Sequential& s, at::Tensor x) {
         const at::Tensor a = s->begin()->forward(x);
         const at::Tensor b = (s->begin() + 3)->forward(a.tanh());
         return (s->begin() + 6)->forward(at::cat({a, b}, 0));
       }},
      {"random numbers drawn between the layers",
       [](Sequential& s, at::Tensor x) {
         at::Tensor noise = at::zeros({});
         for (AnyModule& layer : *s) {
           x = layer.forward(x);
           noise = noise + at::randn({});
         }
         return x + noise.to(x.device());
       }},
      {"changed in place between the layers",
       [](Sequential& s, at::Tensor x) {
         for (AnyModule& layer : *s) {
           x = layer.forward(x);
           if (&layer == &*(s->begin() + 2) || &layer == &*(s->begin() + 3)) {
             x.add_(1);
           }
         }
         return x;
       }},
      {"two inputs by turns",
       [](Sequential& s, const at::Tensor& x) {
         at::Tensor left = x;
         at::Tensor right = x.flip(0);
         for (AnyModule& layer : *s) {
           left = layer.forward(left);
           right = layer.forward(right);
         }
         return left * right;
       }},
      {"first layers without gradient",
       [](Sequential& s, at::Tensor x) {
         for (AnyModule& layer : *s) {
           const at::AutoGradMode mode(&layer - &*s->begin() > 3);
           x = layer.forward(x);
         }
         return x;
       }},
      {"its own forward twice, and walked",
       [](Sequential& s, const at::Tensor& x) {
         at::Tensor y = s->forward(s->forward(x));
         for (AnyModule& layer : *s) {
           y = layer.forward(y).sin();
         }
         return y;
       }},
      {"in a region of the program's own",
       [](Sequential& s, const at::Tensor& x) {
         return checkpoint(
             CheckpointOptions().buffers(s->buffers()),
             [s](at::Tensor y) mutable {
               for (AnyModule& layer : *s) {
                 y = layer.forward(y);
               }
               return y.tanh();
             },
             x);
       }},
      {"each layer in a region of the program's own",
       [](Sequential& s, at::Tensor x) {
         for (AnyModule& layer : *s) {
           x = checkpoint(
               CheckpointOptions().buffers(layer.ptr()->buffers()),
               [layer](const at::Tensor& y) mutable { return layer.forward(y); }, x);
         }
         return x;
       }},
      {"another Sequential of its layers",
       [](Sequential& s, const at::Tensor& x) {
         Sequential part;
         for (int i = 2; i < 7; ++i) {
           part->push_back(*(s->begin() + i));
         }
         return part->forward(x.tanh());
       }},
      {"backward between the layers",
       [](Sequential& s, at::Tensor x) {
         x = s->begin()->forward(x.requires_grad_());
         const at::Tensor y = (s->begin() + 1)->forward(x);
         const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true)[0];
         return (s->begin() + 2)->forward(y) * slope;
       }},
  };
}

class WalkedSequential : public ::testing::TestWithParam<size_t> {};

TEST_P(WalkedSequential, EndsAtThePlainWeights) {
  const auto [name, forward] = walks()[GetParam()];
  const auto options = TrainerOptions().unused(UnusedParameters::zeros);
  const auto plain = trained(forward, options);
  for (const char* budget : {"automatic", "13 KiB", "1 MiB"}) {
    EXPECT_TRUE(equal(plain, trained(forward, TrainerOptions(options).activation_budget(budget))))
        << name << ", budget " << budget;
  }
}

INSTANTIATE_TEST_SUITE_P(ByEachWay, WalkedSequential, ::testing::Range<size_t>(0, walks().size()));

/// What the Sequential's own forward recomputes, another one recomputes as far as it takes its way.
TEST(WalkedSequential, RegionsReachAsFarAsTheLayersAreCalledInSequence) {
  const auto recomputed = [](const Around::Forward& forward) {
    Sequential net;
    for (int i = 0; i < 9; ++i) {
      net->push_back(Doubler());
    }
    net->to(testing::device());
    Trainer trainer(runtime(), net, SGD(0.01), TrainerOptions().activation_budget("automatic"));
    trainer.step([&]() -> Loss { return forward(net, input_of(0)).square().mean(); });
    EXPECT_THAT(trainer.activation_report(), HasSubstr("(0 1 2) (3 4 5) 6 7 8"));
    std::string counts;
    for (const auto& child : net->children()) {
      counts += std::to_string(child->as<Doubler>()->recomputed);
    }
    return counts;
  };
  const std::string own =
      recomputed([](Sequential& s, const at::Tensor& x) { return s->forward(x); });
  EXPECT_EQ(own, "111111000");
  EXPECT_EQ(own, recomputed([](Sequential& s, at::Tensor x) {
              for (AnyModule& layer : *s) {
                x = layer.forward(x);
              }
              return x;
            }));
  EXPECT_EQ(own, recomputed([](Sequential& s, at::Tensor x) {
              for (AnyModule& layer : *s) {
                x = layer.forward(x).sin();
              }
              return x;
            }));
}

TEST(WalkedSequential, AChainThatDoesNotFitItselfIsNamedByABudgetInBytes) {
  struct Concatenates : torch::nn::Module {
    Concatenates() {
      layers->push_back(Linear(width, width));
      layers->push_back(Linear(2 * width, width));
      register_module("layers", layers);
      to(testing::device());
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = layers->begin()->forward(x);
      return (layers->begin() + 1)->forward(at::cat({x, y}, 1));
    }
    Sequential layers;
  };
  const auto run = [](const char* budget) {
    const auto model = std::make_shared<Concatenates>();
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().activation_budget(budget));
    trainer.step([&]() -> Loss { return model->forward(input_of(0)).square().mean(); });
  };
  run("automatic");
  const std::string message = error_of([&] { run("1 MiB"); });
  EXPECT_THAT(message, HasSubstr("stage 1 ('torch::nn::LinearImpl')"));
  EXPECT_THAT(message, HasSubstr("PlannedChain"));
}

TEST(WalkedSequential, ABudgetThatIsNotKeptIsSaid) {
  const auto report = [](const Around::Forward& forward) {
    const auto model = std::make_shared<Around>(forward);
    const auto options =
        TrainerOptions().unused(UnusedParameters::zeros).activation_budget("1 MiB");
    Trainer trainer(runtime(), model, SGD(0.1), options);
    for (int64_t step = 0; step < 4; ++step) {
      trainer.step([&]() -> Loss { return model->forward(input_of(step)).square().mean(); });
    }
    return trainer.activation_report();
  };
  EXPECT_THAT(report([](Sequential& s, const at::Tensor& x) { return by_pointer(s[0], x); }),
              HasSubstr("budget 1 MiB is not kept"));
  EXPECT_THAT(report([](Sequential& s, const at::Tensor& x) { return s->forward(x); }),
              HasSubstr("predicted"));
}

struct TwoInputs : torch::nn::Module {
  TwoInputs() { register_module("linear", linear); }
  at::Tensor forward(at::Tensor x, at::Tensor y) { return linear(x + y); }
  Linear linear{width, width};
};

TEST(WalkedSequential, AFirstModuleOfTwoInputsIsRunOrNamed) {
  const auto weights = [](const TrainerOptions& options) {
    torch::manual_seed(22);
    Sequential net(TwoInputs(), Linear(width, width), Dropout(0.3), Linear(width, width),
                   Linear(width, width));
    net->to(testing::device());
    Trainer trainer(runtime(), net, SGD(0.1), options);
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor x = input_of(step);
      trainer.step([&]() -> Loss { return net->forward(x, x.flip(0)).square().mean(); });
    }
    return net->parameters()[0].detach().clone();
  };
  EXPECT_TRUE(at::equal(weights(TrainerOptions()),
                        weights(TrainerOptions().activation_budget("automatic"))));
  EXPECT_THAT(error_of([&] { weights(TrainerOptions().activation_budget("1 MiB")); }),
              AllOf(HasSubstr("TwoInputs"), HasSubstr("2 arguments"), HasSubstr("PlannedChain")));
}

TEST(WalkedSequential, ClonesFilesAndEvaluationAreThoseOfTheModel) {
  const Around::Forward own = [](Sequential& s, const at::Tensor& x) { return s->forward(x); };
  const auto model = std::make_shared<Around>(own);
  Sequential& layers = model->layers;
  const std::vector<std::shared_ptr<torch::nn::Module>> modules = layers->children();
  const auto names = model->named_parameters().keys();
  AnyModule outlives;
  {
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().activation_budget("automatic"));
    trainer.step([&]() -> Loss { return model->forward(input_of(0)).square().mean(); });
    EXPECT_EQ(model->named_parameters().keys(), names);
    EXPECT_EQ(layers->children(), modules);
    for (size_t i = 0; i < layers->size(); ++i) {
      EXPECT_EQ(layers->ptr(i), modules[i]);
      EXPECT_EQ((layers->begin() + static_cast<std::ptrdiff_t>(i))->type_info(),
                typeid(*modules[i]));
    }
    EXPECT_EQ(&layers->at<LinearImpl>(3), modules[3].get());
    EXPECT_EQ(layers->ptr<DropoutImpl>(4), modules[4]);
    EXPECT_THROW(layers->at<LinearImpl>(1), c10::Error);

    const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(layers->clone());
    EXPECT_NE(copy->ptr(0), modules[0]);
    std::stringstream file;
    torch::save(layers, file);
    Sequential loaded = new_sequential();
    torch::load(loaded, file);
    loaded->to(testing::device());

    model->eval();
    copy->eval();
    loaded->eval();
    const at::Tensor x = input_of(1);
    const at::NoGradGuard no_grad;
    const at::Tensor y = layers->forward(x);
    EXPECT_TRUE(at::equal(y, copy->forward(x)));
    EXPECT_TRUE(at::equal(y, loaded->forward(x)));
    at::Tensor walked = x;
    for (size_t i = 0; i < layers->size(); ++i) {
      walked = by_type(layers, i, walked);
    }
    EXPECT_TRUE(at::equal(y, walked));
    outlives = *layers->begin();
    layers->push_back(Linear(width, 2));
    EXPECT_EQ(layers->forward(x).size(1), 2);
  }
  EXPECT_EQ(layers->ptr(0), modules[0]);
  const at::Tensor x = input_of(2);
  EXPECT_TRUE(at::equal(outlives.forward(x), layers->at<LinearImpl>(0).forward(x)));
}

}  // namespace
}  // namespace lockstep
