// SPDX-License-Identifier: Apache-2.0
//
// A network that cannot be is refused while it is built, with the op's name and
// the shapes that do not fit.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/add.h"
#include "ops/attention.h"
#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/commit.h"
#include "ops/conv2d.h"
#include "ops/dynamic_conv.h"
#include "ops/embedding.h"
#include "ops/image_slice.h"
#include "ops/last_rows.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/projected_loss.h"
#include "ops/relu.h"
#include "ops/reshape.h"
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "optim/sgd.h"
#include "thimble/model.h"
#include "thimble/network.h"

namespace thimble::testing {
namespace {

ValueSpec F32(const Shape& shape) { return {shape, DType::kF32}; }

struct BadOp {
  std::shared_ptr<const OpDef> def;
  std::vector<ValueSpec> inputs;
  std::vector<std::string> named;  // what the message must say
};

// Long because it is a table.
std::vector<BadOp> BadOps() {
  const ops::Window wide{.kernel = 5, .stride = 1, .padding = 0};
  const ValueSpec per_channel = F32({3});
  const ValueSpec ends = {{2}, DType::kI32};
  const ValueSpec labels = {{5}, DType::kI32, kBatchAxis};
  return {
      {std::make_shared<ops::Normalize>(std::vector<float>{1, 1},
                                        std::vector<float>{0, 0}),
       {{{2, 3, 4, 4}, DType::kU8, kBatchAxis}},
       {"normalize", "[2, 3, 4, 4]", "[2]"}},
      {std::make_shared<ops::ImageSlice>(10, 7, std::vector<float>{1},
                                         std::vector<float>{0}),
       {{{2, 1, 4, 4}, DType::kU8, kBatchAxis}},
       {"image-slice", "[2, 1, 4, 4]", "10 to 17"}},
      {std::make_shared<ops::LstmGates>(false),
       {F32({2, 7}), F32({12, 6}), F32({12})},
       {"lstm-gates", "[2, 7]", "[12, 6]"}},
      {std::make_shared<ops::LstmGates>(true),
       {F32({2, 7}), F32({12, 7}), F32({12}), F32({2, 4}), F32({12, 4})},
       {"lstm-gates", "[2, 3]", "[2, 4]"}},
      {std::make_shared<ops::LstmCell>(false, 1.0f),
       {F32({2, 7})},
       {"lstm-cell", "[2, 7]", "4H"}},
      {std::make_shared<ops::LstmCell>(true, 1.0f),
       {F32({2, 12}), F32({3, 3})},
       {"lstm-cell", "[2, 12]", "[3, 3]"}},
      {std::make_shared<ops::Conv2d>(1, 1),
       {F32({2, 3, 4, 4}), F32({8, 2, 3, 3})},
       {"conv2d", "[2, 3, 4, 4]", "[8, 2, 3, 3]"}},
      {std::make_shared<ops::Conv2d>(1, 0),
       {F32({2, 3, 4, 4}), F32({8, 3, 5, 5})},
       {"conv2d", "[2, 3, 4, 4]", "[8, 3, 5, 5]"}},
      {std::make_shared<ops::Linear>(),
       {F32({2, 7}), F32({5, 6})},
       {"linear", "[2, 7]", "[5, 6]"}},
      {std::make_shared<ops::Bias>(),
       {F32({2, 3, 4, 4}), F32({4})},
       {"bias", "[2, 3, 4, 4]", "[4]"}},
      {std::make_shared<ops::BatchNorm>(ops::BatchNormAttributes{}),
       {F32({2, 3}), per_channel, F32({5}), per_channel, per_channel},
       {"batch-norm", "[2, 3]", "[5]"}},
      {std::make_shared<ops::BatchNorm>(ops::BatchNormAttributes{}),
       {F32({2, 3, 4}), per_channel, per_channel, per_channel, per_channel},
       {"batch-norm", "[2, 3, 4]", "[N, C, H, W]"}},
      {std::make_shared<ops::Relu>(),
       {{{2, 3}, DType::kU8, kBatchAxis}},
       {"relu", "[2, 3]", "u8"}},
      {std::make_shared<ops::MaxPool>(wide),
       {F32({2, 3, 4, 4})},
       {"max-pool", "[2, 3, 4, 4]", "[5, 5]"}},
      {std::make_shared<ops::AveragePool>(wide),
       {F32({2, 3, 4, 6})},
       {"average-pool", "[2, 3, 4, 6]", "[5, 5]"}},
      {std::make_shared<ops::GlobalAveragePool>(),
       {F32({2, 3})},
       {"global-average-pool", "[2, 3]", "[N, C, H, W]"}},
      {std::make_shared<ops::Add>(),
       {F32({2, 3}), F32({2, 4})},
       {"add", "[2, 3]", "[2, 4]"}},
      {std::make_shared<ops::Shortcut>(0, 1),
       {F32({2, 3, 4, 4})},
       {"shortcut", "[2, 3, 4, 4]", "0 channels"}},
      {std::make_shared<ops::Flatten>(), {F32({2})}, {"flatten", "[2]"}},
      {std::make_shared<ops::Reshape>(Shape{2, 5}),
       {F32({2, 4})},
       {"reshape", "[2, 4]", "[2, 5]"}},
      {std::make_shared<ops::SoftmaxCrossEntropy>(),
       {F32({4, 10}), {{5}, DType::kI32, kBatchAxis}},
       {"softmax-cross-entropy", "[4, 10]", "[5]"}},
      {std::make_shared<ops::Embedding>(1.0f, false),
       {labels, F32({7})},
       {"embedding", "[5]", "[7]"}},
      {std::make_shared<ops::LayerNorm>(1e-5f),
       {F32({5, 4}), F32({3}), F32({4})},
       {"layer-norm", "[5, 4]", "[3]"}},
      {std::make_shared<ops::DynamicConv>(
           ops::DynamicConvSettings{.heads = 2, .kernel = 3}),
       {F32({5, 4}), F32({5, 7}), ends},
       {"dynamic-conv", "[5, 4]", "[5, 7]"}},
      {std::make_shared<ops::Attention>(ops::AttentionSettings{.heads = 2}),
       {F32({5, 4}), F32({6, 4}), F32({7, 4}), ends, ends},
       {"attention", "[6, 4]", "[7, 4]"}},
      {std::make_shared<ops::LastRows>(),
       {F32({5, 4, 2}), ends},
       {"last-rows", "[5, 4, 2]", "[2]"}},
      {std::make_shared<ops::ProjectedCrossEntropy>(0.1),
       {F32({5, 4}), F32({9, 3}), labels},
       {"projected-cross-entropy", "[5, 4]", "[9, 3]"}},
      {std::make_shared<optim::SgdUpdate>(SgdOptions{}),
       {F32({4}), F32({5})},
       {"sgd-update", "[4]", "[5]"}},
      {std::make_shared<ops::Commit>(),
       {F32({4}), F32({3})},
       {"commit", "[4]", "[3]"}},
  };
}

TEST(Refusal, NamesTheOpAndTheShapesThatDoNotFit) {
  for (const BadOp& bad : BadOps()) {
    Graph graph;
    std::vector<ValueId> inputs;
    for (const ValueSpec& spec : bad.inputs) {
      inputs.push_back(graph.AddValue("v", spec, Role::kActivation));
    }
    const auto made = graph.AddOp("mine", bad.def, inputs);
    ASSERT_FALSE(made.ok()) << bad.def->name();
    EXPECT_EQ(made.status().code(), StatusCode::kUsage);
    EXPECT_NE(made.status().message().find("'mine'"), std::string::npos);
    for (const std::string& text : bad.named) {
      EXPECT_NE(made.status().message().find(text), std::string::npos)
          << "'" << text << "' is not in: " << made.status().message();
    }
    EXPECT_TRUE(graph.ops().empty());
  }
}

// Runs `layers` on images [4, 2, 6, 5] and returns what Finish says.
std::string ErrorOf(const std::function<ValueId(Network&, ValueId)>& layers) {
  Network net("bad", 4);
  const ValueId x = net.Images({.channels = 2, .height = 6, .width = 5});
  const Result<Model> model = net.Finish(layers(net, x));
  return model.ok() ? "" : model.status().message();
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Refusal, OfLayersNamesThem) {
  const std::string images = "[4, 2, 6, 5]";
  std::string error = ErrorOf([](Network& net, ValueId x) {
    return net.Conv2d("c", x, {.channels = 3, .kernel = 7, .padding = 0});
  });
  EXPECT_TRUE(Has(error, "'c'") && Has(error, images)) << error;
  error =
      ErrorOf([](Network& net, ValueId x) { return net.Linear("fc", x, 3); });
  EXPECT_TRUE(Has(error, "'fc'") && Has(error, images)) << error;
  error = ErrorOf([](Network& net, ValueId x) {
    return net.Conv2d("c", net.Flatten(x), {});
  });
  EXPECT_TRUE(Has(error, "'c'") && Has(error, "[4, 60]")) << error;
  error = ErrorOf([](Network& net, ValueId x) {
    return net.Add(x, net.Conv2d("c", x, {.channels = 3}));
  });
  EXPECT_TRUE(Has(error, images) && Has(error, "[4, 3, 6, 5]")) << error;
  error = ErrorOf([](Network& net, ValueId x) { return net.MaxPool(x, {9}); });
  EXPECT_TRUE(Has(error, images) && Has(error, "[9, 9]")) << error;
  error = ErrorOf([](Network&, ValueId x) { return x; });
  EXPECT_TRUE(Has(error, "loss") && Has(error, images)) << error;
}

TEST(Refusal, IsTheFirstOfSeveral) {
  const std::string error = ErrorOf([](Network& net, ValueId x) {
    x = net.Linear("first", x, 3);
    return net.Conv2d("second", x, {.stride = 0});
  });
  EXPECT_TRUE(Has(error, "'first'")) << error;
}

TEST(Refusal, OfTwoLayersWithOneName) {
  const std::string error = ErrorOf([](Network& net, ValueId x) {
    x = net.Linear("twin", net.Flatten(x), 3);
    return net.Linear("twin", x, 3);
  });
  EXPECT_TRUE(Has(error, "'twin.weight'") && Has(error, "unique")) << error;
}

TEST(Refusal, OfABatchOutOfRange) {
  for (const int64_t batch : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    Network net("bad", batch);
    const ValueId x = net.Flatten(net.Images({}));
    const Result<Model> model = net.Finish(net.Linear("fc", x, 10));
    ASSERT_FALSE(model.ok());
    EXPECT_TRUE(Has(model.status().message(), std::to_string(batch)))
        << model.status().message();
    const Result<Model> named = BuildModel("mlp", {.batch = batch});
    EXPECT_FALSE(named.ok());
  }
}

TEST(Refusal, OfExtentsOutOfRange) {
  for (const int64_t extent : {int64_t{0}, int64_t{-3}, int64_t{1} << 40}) {
    const auto refused = [](const std::string& error) {
      return !error.empty();
    };
    EXPECT_TRUE(refused(ErrorOf([&](Network& net, ValueId x) {
      return net.Linear("fc", net.Flatten(x), extent);
    }))) << extent;
    EXPECT_TRUE(refused(ErrorOf([&](Network& net, ValueId x) {
      return net.Conv2d("c", x, {.channels = extent});
    }))) << extent;
    EXPECT_TRUE(refused(ErrorOf([&](Network& net, ValueId x) {
      return net.Conv2d("c", x, {.channels = 2, .kernel = extent});
    }))) << extent;
    EXPECT_TRUE(refused(ErrorOf([&](Network& net, ValueId x) {
      x = net.Flatten(net.MaxPool(x, {.kernel = 2, .stride = extent}));
      return extent > 0 ? ValueId{} : net.Linear("fc", x, 3);
    }))) << extent;
  }
}

TEST(Refusal, OfProductsOfExtentsThatDoNotFitAnInteger) {
  // 2^64 elements, which wrap around to none.
  Network images("bad", 1 << 16);
  ValueId x =
      images.Images({.channels = 1 << 16, .height = 1 << 16, .width = 1 << 16});
  x = images.Linear("fc", images.GlobalAveragePool(x), 2);
  EXPECT_FALSE(images.Finish(x).ok());
  EXPECT_FALSE(
      ErrorOf([](Network& net, ValueId y) {
        y = net.Conv2d(
            "c", y,
            {.channels = 1 << 24, .kernel = 1 << 24, .padding = 1 << 23});
        return net.Linear("fc", net.GlobalAveragePool(y), 2);
      }).empty());
  EXPECT_FALSE(ErrorOf([](Network& net, ValueId y) {
                 y = net.Conv2d("c", y, {.padding = INT64_MAX / 2 + 10});
                 return net.Linear("fc", net.GlobalAveragePool(y), 2);
               }).empty());
}

TEST(Refusal, OfNetworksWithoutInputsOrParameters) {
  Network empty("bad", 2);
  EXPECT_FALSE(empty.Finish(ValueId{}).ok());
  EXPECT_TRUE(
      Has(ErrorOf([](Network& net, ValueId x) { return net.Flatten(x); }),
          "nothing to learn"));
  EXPECT_TRUE(Has(ErrorOf([](Network& net, ValueId) {
                    return net.Flatten(net.Images({}));
                  }),
                  "twice"));
  EXPECT_FALSE(ErrorOf([](Network& net, ValueId) {
                 return net.Relu(ValueId{12345});
               }).empty());
}

TEST(Refusal, OfNamesThatNoFileCouldHold) {
  const std::string broken = "caf\xe9";
  const auto layers = {
      +[](Network& net, ValueId x, const std::string& name) {
        return net.Conv2d(name, x, {});
      },
      +[](Network& net, ValueId x, const std::string& name) {
        return net.Linear(name, net.Flatten(x), 2, /*bias=*/false);
      },
      +[](Network& net, ValueId x, const std::string& name) {
        return net.Bias(name, x);
      },
      +[](Network& net, ValueId x, const std::string& name) {
        return net.BatchNorm(name, x);
      },
      +[](Network& net, ValueId x, const std::string& name) {
        const LstmWeights weights = net.Lstm("memory", 60, 3);
        return net.LstmStep(name, net.Flatten(x), weights, {}).h;
      },
      +[](Network& net, ValueId x, const std::string& name) {
        net.Lstm(name, 60, 3);
        return x;
      }};
  const auto error_of = [](const std::string& name, auto layer,
                           const std::string& layer_name) {
    Network net(name, 4);
    ValueId x = net.Images({.channels = 2, .height = 6, .width = 5});
    x = net.Flatten(layer(net, x, layer_name));
    const Result<Model> model = net.Finish(net.Linear("fc", x, 3));
    EXPECT_TRUE(model.ok() || model.status().code() == StatusCode::kUsage);
    return model.ok() ? "" : model.status().message();
  };
  for (const auto& layer : layers) {
    EXPECT_TRUE(Has(error_of("net", layer, broken), "the name 'caf?"));
    EXPECT_TRUE(Has(error_of("net", layer, broken), "' is not UTF-8"));
    EXPECT_TRUE(Has(error_of(broken, layer, "a"), "the name 'caf?' is not"));
    EXPECT_EQ(error_of("café", layer, "größer"), "");
    // Parameters have a suffix, so none is the key that files have of their
    // own.
    EXPECT_EQ(error_of("net", layer, "__metadata__"), "");
  }
}

TEST(Refusal, OfSequencesSaysWhatDoesNotFit) {
  const auto error_of = [](int64_t steps, int64_t read, int64_t features) {
    Network net("bad", 4);
    net.ImageSequence({.channels = 2, .height = 6, .width = 5}, steps);
    const LstmWeights weights = net.Lstm("memory", features, 3);
    const ValueId x = net.SequenceStep(read);
    const LstmState state = net.LstmStep("first", x, weights, {});
    const Result<Model> model = net.Finish(net.Linear("fc", state.h, 3));
    return model.ok() ? "" : model.status().message();
  };
  EXPECT_EQ(error_of(6, 5, 10), "");
  EXPECT_TRUE(Has(error_of(7, 0, 10), "divides 60"));
  EXPECT_TRUE(Has(error_of(0, 0, 10), "divides 60"));
  EXPECT_TRUE(Has(error_of(6, 6, 10), "step 6"));
  EXPECT_TRUE(Has(error_of(6, -1, 10), "step -1"));
  EXPECT_TRUE(Has(error_of(6, 0, 9), "'first.gates'"));
  EXPECT_TRUE(Has(error_of(6, 0, 0), "memory.weight_x"));
  EXPECT_TRUE(Has(ErrorOf([](Network& net, ValueId x) {
                    net.Lstm("none", 5, int64_t{1} << 62);
                    return x;
                  }),
                  "'none'"));
}

TEST(Refusal, OfUnknownModelsNamesTheKnownOnes) {
  const Result<Model> model = BuildModel("vgg", {});
  ASSERT_FALSE(model.ok());
  for (const ModelName& known : ModelNames()) {
    EXPECT_TRUE(Has(model.status().message(), std::string(known.name)));
  }
}

}  // namespace
}  // namespace thimble::testing
