// SPDX-License-Identifier: Apache-2.0
//
// A network of your own in about thirty lines: build it, plan it, train it.
// Usage: own_model [DATA [STEPS]]; DATA is a data set's name or folder.
#include <cstdio>
#include <cstdlib>

#include "thimble/network.h"
#include "thimble/trainer.h"

using namespace thimble;

static int Fail(const Status& status) {
  std::fprintf(stderr, "own_model: %s\n", status.message().c_str());
  return 1;
}

int main(int argc, char** argv) {
  auto data = OpenDataset(argc > 1 ? argv[1] : "synthetic", {});
  if (!data.ok()) return Fail(data.status());
  const ImageSpec& spec = (*data)->spec();

  Network net("own", /*batch=*/64);
  ValueId x = net.Images({spec.channels, spec.height, spec.width});
  x = net.Relu(net.BatchNorm("bn1", net.Conv2d("conv1", x, {.channels = 8})));
  x = net.MaxPool(x);
  ValueId y = net.BatchNorm("bn2", net.Conv2d("conv2", x, {.channels = 8}));
  x = net.Relu(net.Add(x, y));  // a residual connection
  x = net.Linear("head", net.Flatten(net.MaxPool(x)), spec.classes);
  auto model = net.Finish(x);
  if (!model.ok()) return Fail(model.status());

  auto plan = MakePlan(*model, {.threads = 2, .budget = 8'000'000});
  if (!plan.ok()) return Fail(plan.status());
  TrainOptions options;
  options.learning_rate = 0.02;
  options.steps = argc > 2 ? std::atoll(argv[2]) : 200;
  auto summary = Train(*plan, **data, options, nullptr);
  if (!summary.ok()) return Fail(summary.status());
  std::printf("arena %llu bytes, test accuracy %.1f%%\n",
              static_cast<unsigned long long>(summary->arena_bytes),
              100.0 * summary->metric("accuracy").last);
  return 0;
}
