// SPDX-License-Identifier: Apache-2.0
#include "models/mlp_cnn.h"

namespace thimble::models {

Result<Model> BuildMlp(const ModelOptions& options) {
  Network net("mlp", options.batch);
  ValueId x = net.Flatten(net.Images(options.images));
  x = net.Relu(net.Linear("fc1", x, 256));
  x = net.Relu(net.Linear("fc2", x, 128));
  x = net.Dropout(x, options.dropout.value_or(0));
  return net.Finish(net.Linear("fc3", x, options.classes));
}

Result<Model> BuildCnn(const ModelOptions& options) {
  Network net("cnn", options.batch);
  const auto block = [&net](const std::string& number, ValueId x,
                            int64_t channels) {
    x = net.Conv2d("conv" + number, x, {.channels = channels});
    return net.Relu(net.BatchNorm("bn" + number, x));
  };
  ValueId x = net.Images(options.images);
  x = net.MaxPool(block("1", x, 16));
  x = block("2", x, 32);
  x = net.MaxPool(block("3", x, 32));
  x = net.GlobalAveragePool(block("4", x, 64));
  x = net.Dropout(x, options.dropout.value_or(0));
  return net.Finish(net.Linear("fc", x, options.classes));
}

}  // namespace thimble::models
