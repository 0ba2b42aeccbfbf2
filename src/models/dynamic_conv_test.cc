// SPDX-License-Identifier: Apache-2.0
#include "models/dynamic_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/op.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/dynamic_conv.h"
#include "thimble/model.h"

namespace thimble {
namespace {

Model ModelOf(const std::string& name, ModelOptions options = {}) {
  options.batch = 50;
  auto model = BuildModel(name, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

std::map<std::string, Init> InitsOf(const Model& model) {
  std::map<std::string, Init> inits;
  for (const Value& value : model.graph.values()) {
    if (value.role == Role::kParameter) inits[value.name] = value.init;
  }
  return inits;
}

TEST(DynamicConvModel, HasThePapersParameterCount) {
  const Model model = ModelOf("dynamicconv-iwslt");
  EXPECT_EQ(model.graph.ParameterCount(), 38'685'184);
  EXPECT_EQ(model.name, "dynamicconv-iwslt");
  const Model same = ModelOf("dynamicconv-512-1024-7-6");
  EXPECT_EQ(same.fingerprint, model.fingerprint);
  // Two embeddings and what makes logits, which share nothing.
  const Model more = ModelOf("dynamicconv-iwslt", {.source_vocabulary = 8849,
                                                   .target_vocabulary = 6634});
  EXPECT_EQ(more.graph.ParameterCount(), 38'685'184 + (1 + 2 * 2) * 512);
  EXPECT_NE(more.fingerprint, model.fingerprint);
}

// By hand: D features, F in feed-forward layers, kernels 3, 7, 15, 31, 31, ...
TEST(DynamicConvModel, CountsByItsFourNumbers) {
  constexpr int64_t kSource = 30, kTarget = 20;
  const ModelOptions small = {.source_vocabulary = kSource,
                              .target_vocabulary = kTarget};
  const auto count = [&](int64_t d, int64_t f, int64_t encoders,
                         int64_t decoders) {
    constexpr int64_t kKernels[] = {3, 7, 15, 31, 31, 31};
    const auto taps = [&](int64_t layers) {
      int64_t all = 0;
      for (int64_t i = 0; i < layers; ++i) all += 4 * kKernels[i] * d;
      return all;
    };
    const int64_t square = d * d + d, norm = 2 * d;
    const int64_t feed = 2 * d * f + f + d + norm;
    const int64_t conv = 2 * square + norm, attention = 4 * square + norm;
    return (kSource + 2 * kTarget) * d + encoders * (conv + feed) +
           taps(encoders) + decoders * (conv + attention + feed) +
           taps(decoders);
  };
  EXPECT_EQ(ModelOf("dynamicconv-16-24-2-2", small).graph.ParameterCount(),
            count(16, 24, 2, 2));
  EXPECT_EQ(ModelOf("dynamicconv-8-40-6-1", small).graph.ParameterCount(),
            count(8, 40, 6, 1));
}

TEST(DynamicConvModel, OtherNamesAreRefused) {
  for (const char* name : {"dynamicconv",
                           "dynamicconv-",
                           "dynamicconv-wmt",
                           "dynamicconv-512",
                           "dynamicconv-512-1024-7",
                           "dynamicconv-512-1024-7-6-5",
                           "dynamicconv-512-1024-7-6-",
                           "dynamicconv-512-1024-7-",
                           "dynamicconv-0-1024-7-6",
                           "dynamicconv-512-0-7-6",
                           "dynamicconv-512-1024-0-6",
                           "dynamicconv-512-1024-7-0",
                           "dynamicconv--512-1024-7-6",
                           "dynamicconv-512--7-6",
                           "dynamicconv-+512-1024-7-6",
                           "dynamicconv- 512-1024-7-6",
                           "dynamicconv-512-1024-7-6 ",
                           "dynamicconv-5e2-1024-7-6",
                           "dynamicconv-12-1024-7-6",
                           "dynamicconv-513-1024-7-6",
                           "dynamicconv-16392-1024-7-6",
                           "dynamicconv-512-16385-7-6",
                           "dynamicconv-512-1024-65-6",
                           "dynamicconv-512-1024-7-65",
                           "dynamicconv-99999999999999999999-1024-7-6",
                           "dynamicconv-iwslt-2",
                           "dynamicconv-Iwslt",
                           "Dynamicconv-iwslt"}) {
    EXPECT_EQ(BuildModel(name, {.batch = 2}).status().code(),
              StatusCode::kUsage)
        << name;
  }
  const std::string says =
      BuildModel("dynamicconv-12-1024-7-6", {}).status().message();
  for (const char* limit :
       {"dynamicconv-iwslt", "up to 16384", "multiple of 8", "up to 64"}) {
    EXPECT_NE(says.find(limit), std::string::npos) << says;
  }
  EXPECT_TRUE(BuildModel("dynamicconv-016-024-02-01", {}).ok());
  EXPECT_TRUE(models::ParseDynamicConvName("cnn").ok());
  EXPECT_FALSE(models::ParseDynamicConvName("cnn")->has_value());
}

TEST(DynamicConvModel, RefusesAVocabularyOfNothing) {
  for (const int64_t words : {0, -1}) {
    for (const bool source : {true, false}) {
      ModelOptions options;
      (source ? options.source_vocabulary : options.target_vocabulary) = words;
      EXPECT_EQ(BuildModel("dynamicconv-16-24-2-2", options).status().code(),
                StatusCode::kUsage)
          << words;
    }
  }
}

TEST(DynamicConvModel, StartsAsTheAuthorsDo) {
  const auto inits = InitsOf(ModelOf("dynamicconv-iwslt"));
  const auto expect = [&](const char* name, Init::Kind kind, double value) {
    ASSERT_TRUE(inits.contains(name)) << name;
    const Init& init = inits.at(name);
    EXPECT_EQ(init.kind, kind) << name;
    EXPECT_NEAR(init.value, value, 1e-6) << name;
  };
  using enum Init::Kind;
  for (const char* name : {"encoder.embedding.weight",
                           "decoder.embedding.weight", "output.weight"}) {
    expect(name, kNormal, 1 / std::sqrt(512.0));
  }
  for (const char* layer : {"encoder.layer7", "decoder.layer6"}) {
    const auto of = [&](const char* part) { return layer + std::string(part); };
    expect(of(".conv.in.weight").c_str(), kUniform, std::sqrt(6.0 / 1024));
    expect(of(".conv.out.weight").c_str(), kUniform, std::sqrt(6.0 / 1024));
    expect(of(".conv.taps.weight").c_str(), kUniform, 1 / std::sqrt(512.0));
    expect(of(".feed.in.weight").c_str(), kUniform, std::sqrt(6.0 / 1536));
    expect(of(".feed.in.bias").c_str(), kConstant, 0);
    expect(of(".feed.norm.weight").c_str(), kConstant, 1);
    EXPECT_FALSE(inits.contains(of(".conv.taps.bias")));
  }
  // Three parts of one matrix of 1536 rows.
  for (const char* part : {"query", "key", "value"}) {
    expect(
        ("decoder.layer1.attention." + std::string(part) + ".weight").c_str(),
        kUniform, std::sqrt(6.0 / 2048));
  }
}

TEST(DynamicConvModel, DropsLessInSoftmaxes) {
  const auto rates = [](const ModelOptions& options) {
    std::multiset<int> outer, inner;  // in thousandths
    const Model model = ModelOf("dynamicconv-16-24-2-3", options);
    const auto of = [](float rate) {
      return static_cast<int>(std::lround(rate * 1000));
    };
    for (const Op& op : model.graph.ops()) {
      if (Is<ops::Dropout>(op)) {
        outer.insert(of(static_cast<const ops::Dropout&>(*op.def).rate()));
      } else if (Is<ops::DynamicConv>(op)) {
        inner.insert(of(
            static_cast<const ops::DynamicConv&>(*op.def).settings().dropout));
      } else if (Is<ops::Attention>(op)) {
        inner.insert(
            of(static_cast<const ops::Attention&>(*op.def).settings().dropout));
      }
    }
    return std::pair(outer, inner);
  };
  // Two embeddings, two parts of an encoder's layer, three of a decoder's.
  const auto [outer, inner] = rates({});
  EXPECT_EQ(outer.count(300), 2u + 2u * 2u + 3u * 3u);
  EXPECT_EQ(outer.size(), outer.count(300));
  EXPECT_EQ(inner.count(100), 2u + 3u * 2u);
  EXPECT_EQ(inner.size(), inner.count(100));
  const auto [none, within] = rates({.dropout = 0});
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(within.count(0), within.size());
  EXPECT_EQ(ModelOf("dynamicconv-16-24-2-3").build_options.at("dropout"), 0.3);
  EXPECT_EQ(ModelOf("dynamicconv-16-24-2-3", {.dropout = 0.6})
                .build_options.at("dropout"),
            0.6);
  EXPECT_EQ(rates({.dropout = 0.6}).second.count(200), 8u);
}

// Two ops that drew the same numbers would drop the same values.
TEST(DynamicConvModel, EveryMaskIsItsOwn) {
  const Model model = ModelOf("dynamicconv-16-24-3-3");
  std::set<uint32_t> streams;
  size_t masks = 0;
  for (const Op& op : model.graph.ops()) {
    if (Is<ops::DynamicConv>(op)) {
      streams.insert(
          static_cast<const ops::DynamicConv&>(*op.def).settings().stream);
    } else if (Is<ops::Attention>(op)) {
      streams.insert(
          static_cast<const ops::Attention&>(*op.def).settings().stream);
    } else if (Is<ops::Dropout>(op)) {
      streams.insert(static_cast<const ops::Dropout&>(*op.def).stream());
    } else {
      continue;
    }
    ++masks;
  }
  EXPECT_EQ(streams.size(), masks);
}

TEST(DynamicConvModel, KernelsGrowUpTo31AndLookBackInTheDecoder) {
  const Model model = ModelOf("dynamicconv-iwslt");
  std::vector<int64_t> kernels[2];
  for (const Op& op : model.graph.ops()) {
    if (!Is<ops::DynamicConv>(op)) continue;
    const auto& settings =
        static_cast<const ops::DynamicConv&>(*op.def).settings();
    EXPECT_EQ(settings.heads, 4);
    EXPECT_EQ(settings.causal, op.name.starts_with("decoder"));
    kernels[settings.causal ? 1 : 0].push_back(settings.kernel);
  }
  EXPECT_EQ(kernels[0], (std::vector<int64_t>{3, 7, 15, 31, 31, 31, 31}));
  EXPECT_EQ(kernels[1], (std::vector<int64_t>{3, 7, 15, 31, 31, 31}));
}

TEST(DynamicConvModel, IsListedWithASchedule) {
  int listed = 0;
  for (const ModelName& name : ModelNames()) {
    if (name.name.starts_with("dynamicconv-")) ++listed;
  }
  EXPECT_EQ(listed, 2);
  for (const char* name : {"dynamicconv-iwslt", "dynamicconv-16-24-2-2"}) {
    const TrainingPreset preset = PresetOf(name);
    EXPECT_EQ(preset.schedule, "inverse-sqrt");
    EXPECT_EQ(preset.learning_rate, 5e-4);
    EXPECT_EQ(preset.warmup_steps, 4000);
  }
}

}  // namespace
}  // namespace thimble
