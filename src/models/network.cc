// SPDX-License-Identifier: Apache-2.0
#include "thimble/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "graph/fingerprint.h"
#include "graph/op.h"
#include "models/extents.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/conv2d.h"
#include "ops/dropout.h"
#include "ops/linear.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/relu.h"
#include "ops/reshape.h"
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "thimble/text.h"

namespace thimble {
namespace {

// Every extent and the product of all of them.
bool IsReasonable(const Shape& shape) {
  int64_t product = 1;
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    if (!InRange(shape[axis])) return false;
    // Both factors are far below 2^63 / the other's limit.
    static_assert(kMaxElements <= INT64_MAX / kMaxExtent);
    product *= shape[axis];
    if (product > kMaxElements) return false;
  }
  return true;
}

}  // namespace

Network::Network(std::string name, int64_t batch, std::string units)
    : batch_(batch) {
  model_.name = std::move(name);
  model_.graph.AddAxis(std::move(units), batch);
  CheckName(model_.name);
  if (!InRange(batch)) {
    Fail(fmt::format("batch must be between 1 and {}, got {}", kMaxExtent,
                     batch));
  }
}

void Network::Fail(std::string message) {
  if (status_.ok()) status_ = Status::Usage(std::move(message));
}

bool Network::CheckName(const std::string& name) {
  if (IsUtf8(name)) return true;
  Fail(
      fmt::format("the name '{}' is not UTF-8, which files of weights and logs "
                  "require; choose another",
                  Printable(name)));
  return false;
}

bool Network::Usable(ValueId x) {
  if (!status_.ok()) return false;
  if (x.i >= model_.graph.values().size()) {
    Fail("a layer was given a value that no layer of this network made");
    return false;
  }
  return true;
}

std::string Network::Unnamed(const char* kind) {
  return fmt::format("{}{}", kind, ++unnamed_);
}

ValueId Network::Parameter(const std::string& name, const Shape& shape,
                           Init init, Role role) {
  if (!status_.ok() || !CheckName(name)) return {};
  if (!IsReasonable(shape)) {
    Fail(
        fmt::format("'{}': a shape {} is not possible; extents go from 1 to "
                    "{}, elements up to {}",
                    name, shape.ToString(), kMaxExtent, kMaxElements));
    return {};
  }
  if (!parameter_names_.insert(name).second) {
    Fail(fmt::format("two layers are called '{}'; names must be unique", name));
    return {};
  }
  return model_.graph.AddValue(name, {shape, DType::kF32}, role, init);
}

ValueId Network::AddLayer(const std::string& name,
                          std::shared_ptr<const OpDef> def,
                          std::vector<ValueId> inputs) {
  const auto made = AddOp(name, std::move(def), std::move(inputs));
  return made.empty() ? ValueId{} : made[0];
}

std::vector<ValueId> Network::AddOp(const std::string& name,
                                    std::shared_ptr<const OpDef> def,
                                    std::vector<ValueId> inputs) {
  for (ValueId input : inputs) {
    if (!Usable(input)) return {};
  }
  if (!CheckName(name)) return {};
  auto made = model_.graph.AddOp(name, std::move(def), std::move(inputs));
  if (!made.ok()) {
    Fail(made.status().message());
    return {};
  }
  const Shape& shape = model_.graph.value((*made)[0]).spec.shape;
  if (!IsReasonable(shape)) {
    Fail(fmt::format("'{}': a result {} is too large", name, shape.ToString()));
    return {};
  }
  return *made;
}

bool Network::AddImages(const ImageLayer& layer) {
  if (!status_.ok()) return false;
  if (images_.valid()) {
    Fail("Images was called twice; a network has one input");
    return false;
  }
  const Shape shape{batch_, layer.channels, layer.height, layer.width};
  if (!IsReasonable(shape)) {
    Fail(
        fmt::format("images {} are not possible; extents go from 1 to {}, "
                    "elements up to {}",
                    shape.ToString(), kMaxExtent, kMaxElements));
    return false;
  }
  for (const auto* list : {&layer.mean, &layer.stddev}) {
    if (list->size() == 1 ||
        list->size() == static_cast<size_t>(layer.channels)) {
      continue;
    }
    Fail(
        fmt::format("images: {} channels need 1 or {} means and deviations, "
                    "got {}",
                    layer.channels, layer.channels, list->size()));
    return false;
  }
  for (int64_t c = 0; c < layer.channels; ++c) {
    const auto at = [c](const std::vector<float>& v) {
      return v.size() == 1 ? v[0] : v[static_cast<size_t>(c)];
    };
    const float stddev = at(layer.stddev);
    if (!(stddev > 0.0f) || !std::isfinite(1.0f / stddev) ||
        !std::isfinite(at(layer.mean) / stddev)) {
      Fail(fmt::format(
          "images: mean {} and stddev {} cannot be used; a stddev must be "
          "above 0",
          at(layer.mean), stddev));
      return false;
    }
    image_scale_.push_back(1.0f / stddev);
    image_shift_.push_back(-at(layer.mean) / stddev);
  }
  images_ = model_.graph.AddValue("images", {shape, DType::kU8, kBatchAxis},
                                  Role::kInput);
  feeds_.push_back({"images", images_});
  return true;
}

ValueId Network::Images(const ImageLayer& layer) {
  if (!AddImages(layer)) return {};
  return AddLayer("normalize",
                  std::make_shared<ops::Normalize>(image_scale_, image_shift_),
                  {images_});
}

ValueId Network::Conv2d(const std::string& name, ValueId x,
                        const ConvLayer& layer) {
  if (!Usable(x)) return {};
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() != 4) {
    Fail(fmt::format("conv2d '{}': needs images [N, C, H, W], got {}", name,
                     shape.ToString()));
    return {};
  }
  // In floats: extents are checked by Parameter, and may be anything here.
  const float fan_out = static_cast<float>(layer.kernel) *
                        static_cast<float>(layer.kernel) *
                        static_cast<float>(layer.channels);
  const ValueId weight = Parameter(
      name + ".weight", {layer.channels, shape[1], layer.kernel, layer.kernel},
      {Init::Kind::kNormal, std::sqrt(2.0f / fan_out)});
  return AddLayer(name,
                  std::make_shared<ops::Conv2d>(layer.stride, layer.padding),
                  {x, weight});
}

ValueId Network::Linear(const std::string& name, ValueId x, int64_t features,
                        const LinearLayer& layer) {
  if (!Usable(x)) return {};
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() != 2) {
    Fail(
        fmt::format("linear '{}': needs rows [N, I], got {}; flatten images "
                    "first",
                    name, shape.ToString()));
    return {};
  }
  const float bound = layer.bound > 0.0f
                          ? layer.bound
                          : 1.0f / std::sqrt(static_cast<float>(shape[1]));
  const ValueId weight = Parameter(name + ".weight", {features, shape[1]},
                                   {Init::Kind::kUniform, bound});
  const ValueId y =
      AddLayer(name, std::make_shared<ops::Linear>(), {x, weight});
  return layer.bias ? Bias(name, y) : y;
}

ValueId Network::Bias(const std::string& name, ValueId x) {
  if (!Usable(x)) return {};
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() < 2) {
    Fail(fmt::format("bias '{}': needs [N, C, ...], got {}", name,
                     shape.ToString()));
    return {};
  }
  const ValueId bias = Parameter(name + ".bias", {shape[1]}, {});
  return AddLayer(name + ".add_bias", std::make_shared<ops::Bias>(), {x, bias});
}

ValueId Network::BatchNorm(const std::string& name, ValueId x, float epsilon,
                           float momentum) {
  if (!Usable(x)) return {};
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() < 2) {
    Fail(fmt::format("batch-norm '{}': needs [N, C, ...], got {}", name,
                     shape.ToString()));
    return {};
  }
  const Init zero{Init::Kind::kConstant, 0.0f};
  const Init one{Init::Kind::kConstant, 1.0f};
  const Shape channels{shape[1]};
  const ValueId gamma = Parameter(name + ".weight", channels, one);
  const ValueId beta = Parameter(name + ".bias", channels, zero);
  const ValueId mean =
      Parameter(name + ".running_mean", channels, zero, Role::kStatistic);
  const ValueId variance =
      Parameter(name + ".running_var", channels, one, Role::kStatistic);
  return AddLayer(name,
                  std::make_shared<ops::BatchNorm>(
                      ops::BatchNormAttributes{epsilon, momentum}),
                  {x, gamma, beta, mean, variance});
}

ValueId Network::Relu(ValueId x) {
  return AddLayer(Unnamed("relu"), std::make_shared<ops::Relu>(), {x});
}

ValueId Network::Dropout(ValueId x, double rate) {
  if (rate == 0) return x;
  const auto stream = static_cast<uint32_t>(model_.graph.ops().size());
  return AddLayer(Unnamed("dropout"),
                  std::make_shared<ops::Dropout>(rate, stream), {x});
}

ValueId Network::MaxPool(ValueId x, const PoolLayer& layer) {
  return AddLayer(Unnamed("max_pool"),
                  std::make_shared<ops::MaxPool>(
                      ops::Window{layer.kernel, layer.stride, layer.padding}),
                  {x});
}

ValueId Network::AveragePool(ValueId x, const PoolLayer& layer) {
  return AddLayer(Unnamed("average_pool"),
                  std::make_shared<ops::AveragePool>(
                      ops::Window{layer.kernel, layer.stride, layer.padding}),
                  {x});
}

ValueId Network::GlobalAveragePool(ValueId x) {
  return AddLayer(Unnamed("global_pool"),
                  std::make_shared<ops::GlobalAveragePool>(), {x});
}

ValueId Network::Add(ValueId a, ValueId b) {
  return AddLayer(Unnamed("add"), std::make_shared<ops::Add>(), {a, b});
}

ValueId Network::Shortcut(ValueId x, int64_t channels, int64_t stride) {
  return AddLayer(Unnamed("shortcut"),
                  std::make_shared<ops::Shortcut>(channels, stride), {x});
}

ValueId Network::Flatten(ValueId x) {
  return AddLayer(Unnamed("flatten"), std::make_shared<ops::Flatten>(), {x});
}

Result<std::vector<ValueId>> Network::AddLoss(std::shared_ptr<const OpDef> def,
                                              std::vector<ValueId> inputs) {
  if (feeds_.empty()) return Status::Usage("the network has no Images");
  if (is_for_evaluation_) {
    return Status::Usage(
        "a network with LastRows has no backward pass; end it with "
        "FinishOutputs");
  }
  const ValueId labels = model_.graph.AddValue(
      "labels", {{batch_}, DType::kI32, kBatchAxis}, Role::kInput);
  feeds_.push_back({"labels", labels});
  inputs.push_back(labels);
  auto made = model_.graph.AddOp("loss", std::move(def), std::move(inputs),
                                 Role::kStatistic);
  if (made.ok() && model_.graph.ParameterCount() == 0) {
    return Status::Usage("the network has nothing to learn: no parameters");
  }
  return made;
}

Result<Model> Network::Finish(ValueId logits) {
  if (!Usable(logits)) return status_;
  auto made = AddLoss(std::make_shared<ops::SoftmaxCrossEntropy>(), {logits});
  if (!made.ok()) return made.status();
  model_.ends = {.feeds = feeds_,
                 .outputs = {{"logits", logits}},
                 .loss = (*made)[0],
                 .metrics = {{"accuracy", (*made)[1]}}};
  model_.fingerprint = Fingerprint(model_.graph);
  return std::move(model_);
}

}  // namespace thimble
