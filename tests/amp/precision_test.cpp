#include "spans.h"
#include "test_names.h"

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>

#include <limits>

namespace lockstep {
namespace {

using amp::LossScalerOptions;

ModelTensor tensor(const std::string& name, at::ScalarType dtype, bool in_norm = false) {
  return {name, {}, at::ones({2}, dtype), in_norm};
}

at::ScalarType stored(const Precision& p, at::ScalarType dtype, bool in_norm = false) {
  return p.storage_dtype(tensor("layer.weight", dtype, in_norm));
}

struct Row {
  Precision precision;
  at::ScalarType weights;
  at::ScalarType norms;
  bool masters;
  bool autocast;
  at::ScalarType wire;
  bool dynamic;
  double scale;
};

TEST(Precision, SaysHowWeightsAndWiresAreRounded) {
  const auto rests = Precision::O2(at::kBFloat16).remainders();
  EXPECT_NO_THROW(rests.validate());
  EXPECT_FALSE(rests.has_masters());
  EXPECT_TRUE(rests.has_remainders());
  EXPECT_THAT(rests.describe(), ::testing::HasSubstr("remainders for masters"));
  const auto random = Precision::O3(at::kBFloat16).stochastic_rounding();
  EXPECT_NO_THROW(random.validate());
  EXPECT_THAT(random.describe(), ::testing::HasSubstr("stochastic rounding"));
}

TEST(Precision, TableOfLevels) {
  const auto kF = at::kFloat, kH = at::kHalf, kB = at::kBFloat16;
  const Row rows[] = {
      {Precision::O0(), kF, kF, false, false, kF, false, 1},
      {Precision::O0().wire(kH), kF, kF, false, false, kH, true, 65536},
      {Precision::O0().wire(kB), kF, kF, false, false, kB, false, 1},
      {Precision::O1(), kF, kF, false, true, kH, true, 65536},
      {Precision::O1(kB), kF, kF, false, true, kB, false, 1},
      {Precision::O1().wire(kF), kF, kF, false, true, kF, true, 65536},
      {Precision::O1(kB).wire(kH), kF, kF, false, true, kH, true, 65536},
      {Precision::O2(), kH, kF, true, true, kH, true, 65536},
      {Precision::O2(kB), kB, kF, true, true, kB, false, 1},
      {Precision::O2().wire(kF), kH, kF, true, true, kF, true, 65536},
      {Precision::O3(), kH, kH, false, true, kH, false, 1},
      {Precision::O3(kB), kB, kB, false, true, kB, false, 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.precision.describe());
    EXPECT_NO_THROW(row.precision.validate());
    EXPECT_EQ(stored(row.precision, kF), row.weights);
    EXPECT_EQ(stored(row.precision, kF, /*in_norm=*/true), row.norms);
    EXPECT_EQ(row.precision.has_masters(), row.masters);
    EXPECT_EQ(row.precision.autocast(), row.autocast);
    EXPECT_EQ(row.precision.wire_dtype(), row.wire);
    EXPECT_EQ(row.precision.loss_scaler_options().dynamic(), row.dynamic);
    EXPECT_EQ(row.precision.loss_scaler_options().init_scale(), row.scale);
  }
}

TEST(Precision, ComputeDtypeIsTheOneGiven) {
  EXPECT_EQ(Precision::O0().compute_dtype(), at::kFloat);
  EXPECT_EQ(Precision::O1().compute_dtype(), at::kHalf);
  EXPECT_EQ(Precision::O2(at::kBFloat16).compute_dtype(), at::kBFloat16);
  EXPECT_EQ(Precision::O3(at::kBFloat16).compute_dtype(), at::kBFloat16);
}

TEST(Precision, Describes) {
  EXPECT_EQ(Precision::O2().describe(), "O2 (fp16 model, fp32 norms and masters, fp16 wire)");
  EXPECT_EQ(Precision::O0().describe(), "O0 (fp32 model, fp32 wire)");
  EXPECT_EQ(Precision::O1(at::kBFloat16).describe(), "O1 (fp32 model, bf16 autocast, bf16 wire)");
  EXPECT_EQ(Precision::O3().describe(), "O3 (fp16 model, fp16 norms, no masters, fp16 wire)");
  EXPECT_EQ(Precision::O2().keep_batchnorm_fp32(false).describe(),
            "O2 (fp16 model, fp16 norms, fp32 masters, fp16 wire)");
}

TEST(Precision, OptionsReturnAChangedCopy) {
  const Precision base = Precision::O2();
  const Precision changed = base.wire(at::kFloat).predivide(4).keep_batchnorm_fp32(false);
  EXPECT_EQ(base.wire_dtype(), at::kHalf);
  EXPECT_EQ(base.predivide_factor(), 1.0);
  EXPECT_EQ(stored(base, at::kFloat, true), at::kFloat);
  EXPECT_EQ(changed.wire_dtype(), at::kFloat);
  EXPECT_EQ(changed.predivide_factor(), 4.0);
  EXPECT_EQ(stored(changed, at::kFloat, true), at::kHalf);
}

TEST(Precision, LossScaleReplacesThePolicy) {
  const auto fixed = Precision::O1().loss_scale(LossScalerOptions::fixed(128));
  EXPECT_FALSE(fixed.loss_scaler_options().dynamic());
  EXPECT_EQ(fixed.loss_scaler_options().init_scale(), 128);
  const auto dynamic = Precision::O3().loss_scale(LossScalerOptions::apex());
  EXPECT_TRUE(dynamic.loss_scaler_options().dynamic());
}

TEST(Precision, KeepsNormsWhenAsked) {
  EXPECT_EQ(stored(Precision::O3().keep_batchnorm_fp32(true), at::kFloat, true), at::kFloat);
  EXPECT_EQ(stored(Precision::O3().keep_batchnorm_fp32(true), at::kFloat), at::kHalf);
  EXPECT_NO_THROW(Precision::O0().keep_batchnorm_fp32(true).validate());
  EXPECT_NO_THROW(Precision::O1().keep_batchnorm_fp32(true).validate());
}

TEST(StorageDtypes, IntegerBuffersKeepTheirDtype) {
  for (const auto& p : {Precision::O0(), Precision::O1(), Precision::O2(), Precision::O3()}) {
    for (const auto dtype : {at::kLong, at::kInt, at::kByte, at::kBool}) {
      EXPECT_EQ(stored(p, dtype), dtype);
      EXPECT_EQ(stored(p, dtype, /*in_norm=*/true), dtype);
      EXPECT_EQ(p.buffer_dtype(tensor("count", dtype)), dtype);
      EXPECT_EQ(p.buffer_dtype(tensor("running_mean", dtype, /*in_norm=*/true)), dtype);
    }
  }
}

TEST(Precision, The16BitTypesAreConverted) {
  EXPECT_EQ(stored(Precision::O1(), at::kHalf), at::kFloat);
  EXPECT_EQ(stored(Precision::O2(at::kBFloat16), at::kHalf), at::kBFloat16);
  EXPECT_EQ(stored(Precision::O2(), at::kHalf, /*in_norm=*/true), at::kFloat);
}

std::vector<Precision> every_level() {
  return {Precision::O0(),
          Precision::O0().wire(at::kHalf),
          Precision::O1(),
          Precision::O1(at::kBFloat16),
          Precision::O2(),
          Precision::O2(at::kBFloat16),
          Precision::O2(at::kBFloat16).remainders(),
          Precision::O2().keep_batchnorm_fp32(false),
          Precision::O3(),
          Precision::O3(at::kBFloat16),
          Precision::O3().keep_batchnorm_fp32(true)};
}

TEST(Precision, Fp64AndFp8StayAsTheyAre) {
  for (const Precision& level : every_level()) {
    SCOPED_TRACE(level.describe());
    for (const auto dtype :
         {at::kDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
          at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu, at::kComplexFloat, at::kComplexDouble}) {
      EXPECT_EQ(stored(level, dtype), dtype);
      EXPECT_EQ(stored(level, dtype, /*in_norm=*/true), dtype);
      EXPECT_EQ(level.keep_fp32("wo").storage_dtype(tensor("wo.weight", dtype)), dtype);
    }
  }
}

TEST(Precision, BuffersKeepTheirDtypeAtEveryLevel) {
  for (const Precision& level : every_level()) {
    SCOPED_TRACE(level.describe());
    for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn,
                             at::kFloat8_e5m2, at::kComplexFloat, at::kInt, at::kBool}) {
      EXPECT_EQ(level.buffer_dtype(tensor("average", dtype)), dtype);
      EXPECT_EQ(level.buffer_dtype(tensor("norm.count", dtype, /*in_norm=*/true)), dtype);
      EXPECT_EQ(level.buffer_dtype(tensor("no_norm.running_mean", dtype)), dtype);
      EXPECT_EQ(level.keep_fp32("average").buffer_dtype(tensor("average", dtype)), dtype);
    }
  }
}

TEST(Precision, StatisticsOfNormsFollowTheWeightsOfNorms) {
  for (const Precision& level : every_level()) {
    SCOPED_TRACE(level.describe());
    for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const char* name : {"norm.running_mean", "0.running_var", "running_mean"}) {
        EXPECT_EQ(level.buffer_dtype(tensor(name, dtype, /*in_norm=*/true)),
                  level.storage_dtype(tensor("norm.weight", dtype, /*in_norm=*/true)));
      }
    }
  }
}

TEST(Precision, KeepFp32MatchesDottedParts) {
  const auto p = Precision::O2().keep_fp32("wo").keep_fp32("head.0");
  const auto dtype = [&](const std::string& name) {
    return p.storage_dtype(tensor(name, at::kFloat));
  };
  EXPECT_EQ(dtype("block.0.wo.weight"), at::kFloat);
  EXPECT_EQ(dtype("wo"), at::kFloat);
  EXPECT_EQ(dtype("wo.bias"), at::kFloat);
  EXPECT_EQ(dtype("block.wo"), at::kFloat);
  EXPECT_EQ(dtype("head.0.weight"), at::kFloat);
  EXPECT_EQ(dtype("block.0.two.weight"), at::kHalf);
  EXPECT_EQ(dtype("word.weight"), at::kHalf);
  EXPECT_EQ(dtype("head.01.weight"), at::kHalf);
  EXPECT_EQ(p.storage_dtype(tensor("wo.count", at::kLong)), at::kLong);
}

TEST(Precision, KeepFp32KnowsAllNamesOfATiedTensor) {
  ModelTensor tied = tensor("embedding.weight", at::kFloat);
  tied.aliases = {"decoder.weight"};
  EXPECT_EQ(Precision::O2().keep_fp32("decoder").storage_dtype(tied), at::kFloat);
  EXPECT_EQ(Precision::O2().keep_fp32("encoder").storage_dtype(tied), at::kHalf);
}

TEST(Precision, ImpossibleCombinationsSayWhy) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [](const Precision& p, const std::string& part) {
    expect_error([&] { p.validate(); }, part);
  };
  refuses(Precision::O0().keep_batchnorm_fp32(false), "keep_batchnorm_fp32(false)");
  refuses(Precision::O1().keep_batchnorm_fp32(false), "impossible at O1");
  refuses(Precision::O1(at::kFloat), "compute dtype Float");
  refuses(Precision::O2(at::kDouble), "compute dtype Double");
  refuses(Precision::O3(at::kLong), "compute dtype Long");
  refuses(Precision::O2().wire(at::kDouble), "wire dtype Double");
  refuses(Precision::O0().wire(at::kInt), "wire dtype Int");
  refuses(Precision::O2().remainders(), "remainders(true) is impossible at O2 with fp16");
  refuses(Precision::O3(at::kBFloat16).remainders(), "only O2 has masters");
  refuses(Precision::O3().stochastic_rounding(), "impossible at O3 with fp16");
  refuses(Precision::O2(at::kBFloat16).stochastic_rounding(), "use O3(kBFloat16)");
  refuses(Precision::O2().keep_fp32(""), "keep_fp32 pattern ''");
  refuses(Precision::O2().keep_fp32("wo."), "keep_fp32 pattern 'wo.'");
  refuses(Precision::O2().norms(""), "norms pattern ''");
  refuses(Precision::O2().norms(".ln"), "norms pattern '.ln'");
  refuses(Precision::O2().predivide(0), "Precision.predivide must be > 0 and < inf, is 0");
  refuses(Precision::O2().predivide(-1), "Precision.predivide must be > 0 and < inf, is -1");
  refuses(Precision::O2().predivide(nan), "predivide");
  refuses(Precision::O2().loss_scale(LossScalerOptions().growth_factor(0.1)), "growth_factor");
}

TEST(Precision, AutomaticIsPossibleAndHalvesTheWire) {
  const auto p = Precision::automatic(at::kCPU);
  EXPECT_NO_THROW(p.validate());
  EXPECT_EQ(p.level(), p.autocast() ? Precision::Level::O1 : Precision::Level::O0);
  EXPECT_NE(p.wire_dtype(), at::kFloat);
  EXPECT_EQ(p.wire_dtype(), p.autocast() ? p.compute_dtype() : at::kHalf);
}

TEST(Precision, AutomaticKnowsCpusAndGpusOnly) {
  expect_error([] { Precision::automatic(at::Device(at::kMPS)); }, "neither a CPU nor a CUDA");
}

}  // namespace
}  // namespace lockstep
