// DataParallel without finish().
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/models.h"
#include "test_names.h"

namespace lockstep {
namespace {

TEST(ForgottenFinish, IsAnErrorAtTheNextBackward) {
  for (const bool under_no_sync : {false, true}) {
    const auto model = std::make_shared<OneWeight>(testing::ones({3}));
    DataParallel parallel(runtime().communicator(), model);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const auto backward = [&] {
      optimizer.zero_grad();
      (model->weight * (runtime().rank() + 1)).sum().backward();
    };
    const auto next = [&] {
      if (under_no_sync) {
        const auto local = parallel.no_sync();
        backward();
      } else {
        backward();
      }
    };
    backward();
    optimizer.step();  // with local gradients
    EXPECT_THAT(error_of(next),
                AllOf(HasSubstr("parameter weight got a gradient twice"), HasSubstr("finish()"),
                      HasSubstr("now call abandon() and zero_grad() on every rank")));
    parallel.abandon();
    backward();
    parallel.finish();
    const double mean = testing::sum_of_ranks() / runtime().size() + 1;
    EXPECT_NEAR(model->weight.grad()[0].item<double>(), mean, 1e-6);
    EXPECT_TRUE(testing::equal_on_all_ranks(model->weight.grad()));
  }
}

}  // namespace
}  // namespace lockstep
