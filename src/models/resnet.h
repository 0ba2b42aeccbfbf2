// SPDX-License-Identifier: Apache-2.0
//
// Residual networks with pre-activation blocks (He et al., "Identity Mappings
// in Deep Residual Networks", 2016), for two sizes of images.
//
// resnet-D, for 32×32: a 3×3 stem of 16 channels and three stages. Below 164
// layers D = 6n+2, with n basic blocks in each stage of 16, 32 and 64 channels:
//
//   a = relu(bn1(x));  b = relu(bn2(conv1(a)));  out = shortcut(x) + conv2(b)
//
// Both convolutions are 3×3. Where the shape changes, the shortcut takes every
// second row and column of x and appends channels of zeros, as in the first
// residual networks for CIFAR-10: it has no parameters.
//
// From 164 layers on D = 9n+2, with n bottleneck blocks in each stage of 64,
// 128 and 256 channels, a quarter of them inside of the block:
//
//   a = relu(bn1(x));  b = relu(bn2(conv1(a)));  c = relu(bn3(conv2(b)))
//   out = shortcut + conv3(c)
//
// conv1 and conv3 are 1×1, conv2 is 3×3. The first block of a stage projects by
// a 1×1 convolution of a, all others pass x on. That is the authors' form, and
// so is that conv1, not conv2, has the stride.
//
// resnet-imagenet-D, for 224×224: a 7×7 stem of stride 2, max pooling, and four
// stages of such bottlenecks of 256 to 2048 channels, here with the stride in
// conv2, as networks of this size are usually built. StageBlocks has the
// depths.
//
// Parameter names: stem.weight; stage{s}.block{b}.{bn1,conv1,bn2,…}.*,
// stage{s}.block1.project.weight; bn.*; fc.*.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "thimble/model.h"

namespace thimble::models {

struct ResnetShape {
  int64_t depth = 0;
  bool imagenet = false;
  bool bottleneck = false;
};

// Reads "resnet-110" or "resnet-imagenet-50"; nothing for names of other
// models, an error for a depth that no such network has.
Result<std::optional<ResnetShape>> ParseResnetName(const std::string& name);

// Blocks in each stage of resnet-imagenet-D: the published ones for 50, 101,
// 152 and 200 layers; for any other D = 3n+2 a quarter of the n in each stage,
// what is left over in stages 3, 2 and 4, so that every stage grows with depth.
std::array<int64_t, 4> StageBlocks(int64_t depth);

Result<Model> BuildResnet(const std::string& name, const ResnetShape& shape,
                          const ModelOptions& options);

TrainingPreset ResnetPreset(const ResnetShape& shape);

}  // namespace thimble::models
