// SPDX-License-Identifier: Apache-2.0
//
// RandomNet: a small network made from a seed, with what plans find hard:
// branches, residual sums, dropouts, values that several ops read, chains that
// may run in place, views beside other readers, weights that several steps
// share, odd sizes, and branches that end nowhere.
// The same seed makes the same network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "thimble/network.h"

namespace thimble::testing {

class RandomNet {
 public:
  // Images are `scale` times as large along each side: 1 is quick to run, at 8
  // activations outweigh the kernels' scratch.
  explicit RandomNet(uint64_t seed, int64_t scale = 1)
      : scale_(scale),
        random_(seed, 0, 0),
        batch_(1 + Next(5)),
        net_("random", batch_) {}

  Result<Model> Build() {
    const ImageLayer layer{.channels = 1 + Next(2),
                           .height = (3 + Next(6)) * scale_ + Next(scale_),
                           .width = (3 + Next(6)) * scale_ + Next(scale_)};
    images_.push_back(
        {net_.Images(layer), layer.channels, layer.height, layer.width});
    const int64_t steps = 2 + Next(6);
    for (int64_t i = 0; i < steps; ++i) images_.push_back(AddImageLayers());
    rows_.push_back(MakeRows(images_.back()));
    if (Next(3) == 0) rows_.push_back(MakeRows(Some(images_)));
    const int64_t more = Next(4);
    for (int64_t i = 0; i < more; ++i) rows_.push_back(AddRowLayers());
    if (Next(3) == 0) rows_.push_back(AddLstm());
    return net_.Finish(net_.Linear(Name(), rows_.back().id, 2 + Next(4)));
  }

 private:
  struct Images {
    ValueId id;
    int64_t channels, height, width;
    int64_t side() const { return std::min(height, width); }
  };
  struct Rows {
    ValueId id;
    int64_t features;
  };

  // Below n.
  int64_t Next(int64_t n) {
    const PhiloxBlock block = random_.Block(next_++);
    return static_cast<int64_t>(block[0] % static_cast<uint64_t>(n));
  }
  std::string Name() {
    std::string name = "l";
    name += std::to_string(named_++);
    return name;
  }

  // Mostly the last one; else an earlier one, which then has several readers.
  template <typename T>
  T Some(const std::vector<T>& all) {
    if (Next(3) != 0) return all.back();
    return all[static_cast<size_t>(Next(static_cast<int64_t>(all.size())))];
  }

  static Images Slide(const Images& x, ValueId id, int64_t channels,
                      int64_t kernel, int64_t stride, int64_t padding) {
    return {id, channels, (x.height + 2 * padding - kernel) / stride + 1,
            (x.width + 2 * padding - kernel) / stride + 1};
  }

  Images Conv(const Images& x, int64_t channels, int64_t kernel, int64_t stride,
              int64_t padding) {
    const ValueId y = net_.Conv2d(Name(), x.id,
                                  {.channels = channels,
                                   .kernel = kernel,
                                   .stride = stride,
                                   .padding = padding});
    return Slide(x, y, channels, kernel, stride, padding);
  }

  // A batch norm; a bias where it would see one value per channel.
  ValueId Norm(ValueId x, int64_t pixels) {
    return batch_ * pixels > 1 ? net_.BatchNorm(Name(), x)
                               : net_.Bias(Name(), x);
  }

  Images AddImageLayers() {
    Images x = Some(images_);
    switch (Next(11)) {
      case 0:
        x.id = Norm(x.id, x.height * x.width);
        return x;
      case 1:
        x.id = net_.Relu(x.id);
        return x;
      case 2:
        x.id = net_.Bias(Name(), x.id);
        return x;
      case 3:  // in place all the way, where nobody else reads
        x.id = net_.Relu(net_.Bias(Name(), net_.Add(x.id, Like(x).id)));
        return x;
      case 4: {  // residual
        Images y = Conv(x, x.channels, 3, 1, 1);
        y.id = net_.Add(Norm(y.id, y.height * y.width), x.id);
        y.id = net_.Relu(y.id);
        return y;
      }
      case 5: {  // residual across a change of shape
        const int64_t channels = 1 + Next(x.channels + 2);
        Images y = Conv(x, channels, 3, 2, 1);
        y.id = net_.Add(y.id, net_.Shortcut(x.id, channels, 2));
        return y;
      }
      case 6:
        return Pool(x);
      case 8:  // in place, and again on the gradient
        x.id = net_.Dropout(x.id, 0.25);
        return x;
      case 7:  // the same shape, which is no permission to overwrite
        return Conv(x, x.channels, 3, 1, 1);
      default: {
        const int64_t kernel = 1 + Next(std::min<int64_t>(3, x.side()));
        return Conv(x, 1 + Next(5), kernel, 1 + Next(2), Next(kernel));
      }
    }
  }

  Images Pool(const Images& x) {
    if (x.side() < 2) return {net_.Relu(x.id), x.channels, x.height, x.width};
    const int64_t kernel = 2 + Next(std::min<int64_t>(2, x.side() - 1));
    const PoolLayer layer{kernel, 1 + Next(3), Next(2) * (kernel / 2)};
    const ValueId y = Next(2) == 0 ? net_.MaxPool(x.id, layer)
                                   : net_.AveragePool(x.id, layer);
    return Slide(x, y, x.channels, kernel, layer.stride, layer.padding);
  }

  // An earlier value of the same shape; maybe x itself.
  Images Like(const Images& x) {
    std::vector<Images> same;
    for (const Images& other : images_) {
      if (other.channels == x.channels && other.height == x.height &&
          other.width == x.width) {
        same.push_back(other);
      }
    }
    return same[static_cast<size_t>(Next(static_cast<int64_t>(same.size())))];
  }

  Rows MakeRows(const Images& x) {
    if (Next(3) == 0) return {net_.GlobalAveragePool(x.id), x.channels};
    return {net_.Flatten(x.id), x.channels * x.height * x.width};
  }

  Rows AddRowLayers() {
    Rows x = Some(rows_);
    switch (Next(6)) {
      case 0:
        x.id = net_.Relu(x.id);
        return x;
      case 4:
        x.id = net_.Dropout(x.id, 0.5);
        return x;
      case 1:
        x.id = Norm(x.id, 1);
        return x;
      case 2:
        x.id = net_.Relu(net_.Bias(Name(), net_.Add(x.id, x.id)));
        return x;
      case 3: {  // two readers of one view
        const int64_t features = 1 + Next(5);
        const ValueId a = net_.Linear(Name(), x.id, features);
        const ValueId b = net_.Linear(Name(), x.id, features, false);
        return {net_.Add(a, b), features};
      }
      default: {
        const bool square = Next(2) == 0 && x.features < 20;
        const int64_t features = square ? x.features : 1 + Next(9);
        return {net_.Linear(Name(), x.id, features), features};
      }
    }
  }

  // Some steps on rows of one width, the state of which others may read too.
  Rows AddLstm() {
    const Rows first = Some(rows_);
    const int64_t hidden = 1 + Next(4);
    const LstmWeights weights = net_.Lstm(Name(), first.features, hidden);
    LstmState state;
    const int64_t steps = 2 + Next(3);
    for (int64_t step = 0; step < steps; ++step) {
      state = net_.LstmStep(Name(), first.id, weights, state);
      if (Next(2) == 0) rows_.push_back({state.h, hidden});
    }
    switch (Next(4)) {
      case 0:
        return {state.c, hidden};
      case 1:
        return {net_.Add(state.h, state.c), hidden};
      default:
        return {state.h, hidden};
    }
  }

  int64_t scale_;
  RandomStream random_;
  uint32_t next_ = 0;
  int named_ = 0;
  int64_t batch_;
  Network net_;
  std::vector<Images> images_;
  std::vector<Rows> rows_;
};

}  // namespace thimble::testing
