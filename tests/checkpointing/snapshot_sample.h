#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>

#include <cstdint>
#include <string>

namespace lockstep::testing {

/// A small training state whose every element says of which step and rank it is.
inline snapshot::Content sample_content(int64_t step, int rank, int ranks) {
  snapshot::Content content;
  content.text("config", "{\"step\": " + std::to_string(step) + "}");
  for (const char* name : {"embed.weight", "layer.bias", "layer.weight"}) {
    content.add("model", name, at::full({5, 7}, step, at::kFloat));
  }
  content.add("optimizer", "layer.weight.exp_avg", at::full({11}, 10 * step, at::kDouble));
  const int64_t begin = 24 * rank / ranks;
  const int64_t end = 24 * (rank + 1) / ranks;
  content.add_slice("optimizer", "layer.weight.exp_avg_sq",
                    at::arange(begin, end, at::kFloat) + 1000 * step, begin, {4, 6});
  content.add_own("random", "cpu", at::full({3}, 100 * step + rank, at::kLong));
  return content;
}

/// Every tensor and text must be of the snapshot's step.
inline void expect_sample(const Snapshot& saved, int ranks) {
  const int64_t step = saved.manifest().step;
  EXPECT_NO_THROW(saved.verify());
  EXPECT_EQ(saved.text("config"), "{\"step\": " + std::to_string(step) + "}");
  EXPECT_EQ(saved.manifest().world_size, ranks);
  const auto model = saved.section("model");
  EXPECT_EQ(model.names().size(), 3U);
  for (const std::string& name : model.names()) {
    EXPECT_TRUE(at::equal(model.read(name), at::full({5, 7}, step, at::kFloat))) << name;
  }
  const auto optimizer = saved.section("optimizer");
  EXPECT_TRUE(
      at::equal(optimizer.read("layer.weight.exp_avg"), at::full({11}, 10 * step, at::kDouble)));
  EXPECT_TRUE(at::equal(optimizer.read("layer.weight.exp_avg_sq"),
                        (at::arange(24, at::kFloat) + 1000 * step).view({4, 6})));
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(at::equal(saved.read_own("random", rank, "cpu"),
                          at::full({3}, 100 * step + rank, at::kLong)));
  }
}

}  // namespace lockstep::testing
