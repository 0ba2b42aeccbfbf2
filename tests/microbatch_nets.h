// SPDX-License-Identifier: Apache-2.0
//
// Small networks for tests of microbatches and ghost batches. Not thread-safe:
// gtest's expectations are in them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::testing {

inline const ImageLayer kSmall = {.channels = 2, .height = 6, .width = 6};

inline Model Finish(Network& net, ValueId logits) {
  const Result<Model> model = net.Finish(logits);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

// Every op that makes a parameter's gradient, with batch norms in all forms: in
// convolutions, on images, on rows. A dropout goes by an image's place in the
// step, not in its part.
inline Model Normalized(int64_t batch) {
  Network net("normalized", batch);
  const ValueId first =
      net.Conv2d("first", net.Images(kSmall), {.channels = 3});
  ValueId x = net.Relu(net.BatchNorm("bn1", first, 1e-2f));
  x = net.Conv2d("conv1", x, {.channels = 3});
  x = net.Relu(net.BatchNorm("bn2", x, 1e-2f));
  x = net.Add(first, net.Conv2d("conv2", x, {.channels = 3}));
  x = net.Bias("bias", net.Dropout(net.BatchNorm("bn3", x, 1e-2f), 0.2));
  x = net.Conv2d("conv3", x, {.channels = 2});
  x = net.Linear("fc", net.Flatten(net.AveragePool(x)), 5);
  x = net.Relu(net.BatchNorm("bn4", x, 1e-1f));
  return Finish(net, net.Linear("head", x, 3));
}

inline Model Plain(int64_t batch) {
  Network net("plain", batch);
  ValueId x = net.Conv2d("conv1", net.Images(kSmall), {.channels = 3});
  x = net.Dropout(net.Relu(net.Bias("bias", x)), 0.3);
  x = net.Conv2d("conv2", x, {.channels = 2, .stride = 2});
  x = net.Dropout(net.Relu(net.Linear("fc", net.Flatten(x), 6)), 0.3);
  return Finish(net, net.Linear("head", x, 3));
}

inline Plan PlanOf(const Model& model, const PlanOptions& options) {
  Result<Plan> plan = MakePlan(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const Status valid = ValidatePlan(*plan);
  EXPECT_TRUE(valid.ok()) << valid.message();
  return *std::move(plan);
}

}  // namespace thimble::testing
