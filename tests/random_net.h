// SPDX-License-Identifier: Apache-2.0
//
// RandomNet: a small network made from a seed, of samples of the oracle's ops
// and with what plans find hard: branches, residual sums, values that several
// ops read, chains that may run in place, views beside other readers, weights
// that several steps share, odd sizes, and branches that end nowhere.
// The same seed makes the same network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "oracle/oracle.h"
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
    Keep(net_.Images(layer));
    const int64_t steps = 2 + Next(6);
    for (int64_t i = 0; i < steps; ++i) AddImageLayers();
    MakeRows(images_.back());
    if (Next(3) == 0) MakeRows(Some(images_));
    const int64_t more = Next(4);
    for (int64_t i = 0; i < more; ++i) AddRowLayers();
    return net_.Finish(net_.Linear(Name(), rows_.back().id, 2 + Next(4)));
  }

 private:
  struct Made {
    ValueId id;
    Shape shape;
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
    return Any(all);
  }
  template <typename T>
  T Any(const std::vector<T>& all) {
    return all[static_cast<size_t>(Next(static_cast<int64_t>(all.size())))];
  }

  // The shape of a value of `net`; none where a layer of it does not fit.
  static std::optional<Shape> ShapeIn(Network net, ValueId x) {
    const Result<Model> model =
        net.Finish(net.Linear("probe", net.Flatten(x), 2));
    if (!model.ok()) return std::nullopt;
    return model->graph.value(x).spec.shape;
  }

  // For later layers to read.
  void Keep(ValueId x) {
    const std::optional<Shape> shape = ShapeIn(net_, x);
    TH_CHECK(shape.has_value());
    (shape->rank() == 4 ? images_ : rows_).push_back({x, *shape});
  }

  ValueId Conv(const Made& x, int64_t channels, int64_t stride) {
    return net_.Conv2d(Name(), x.id, {.channels = channels, .stride = stride});
  }

  // A batch norm; a bias where it would see one value per channel.
  ValueId Norm(const Made& x) {
    return x.shape[0] * x.shape.elements_from(2) > 1
               ? net_.BatchNorm(Name(), x.id)
               : net_.Bias(Name(), x.id);
  }

  // A sample of any op, equally likely, on x. Those that do not fit are passed
  // over; a ReLU always fits.
  void AddSample(const Made& x, On on) {
    const std::vector<const Entry*> entries = Entries();
    for (;;) {
      std::vector<Sample> samples = Any(entries)->Samples();
      std::erase_if(samples, [&](const Sample& sample) {
        return sample.on != on || !sample.fits(x.shape);
      });
      if (samples.empty()) continue;
      const Sample sample = Any(samples);
      Network trial = net_;
      const ValueId y = sample.add(trial, x.id, Name());
      if (!ShapeIn(trial, y).has_value()) continue;
      net_ = trial;
      return Keep(y);
    }
  }

  void AddImageLayers() {
    const Made x = Some(images_);
    const int64_t channels = x.shape[1];
    switch (Next(8)) {
      case 0:  // in place all the way, where nobody else reads
        return Keep(net_.Relu(net_.Bias(Name(), net_.Add(x.id, Like(x).id))));
      case 1: {  // residual
        const Made y = {Conv(x, channels, 1), x.shape};
        return Keep(net_.Relu(net_.Add(Norm(y), x.id)));
      }
      case 2: {  // residual across a change of shape
        const int64_t wider = 1 + Next(std::min<int64_t>(channels + 2, 6));
        return Keep(net_.Add(Conv(x, wider, 2), net_.Shortcut(x.id, wider, 2)));
      }
      case 3:  // the same shape, which is no permission to overwrite
        return Keep(Conv(x, channels, 1));
      default:
        return AddSample(x, On::kImages);
    }
  }

  // An earlier value of the same shape; maybe x itself.
  Made Like(const Made& x) {
    std::vector<Made> same;
    for (const Made& other : images_) {
      if (other.shape == x.shape) same.push_back(other);
    }
    return Any(same);
  }

  void MakeRows(const Made& x) {
    Keep(Next(3) == 0 ? net_.GlobalAveragePool(x.id) : net_.Flatten(x.id));
  }

  void AddRowLayers() {
    const Made x = Some(rows_);
    switch (Next(6)) {
      case 0:
        return Keep(net_.Relu(net_.Bias(Name(), net_.Add(x.id, x.id))));
      case 1: {  // two readers of one view
        const int64_t features = 1 + Next(5);
        const ValueId a = net_.Linear(Name(), x.id, features);
        const ValueId b = net_.Linear(Name(), x.id, features, false);
        return Keep(net_.Add(a, b));
      }
      case 2: {  // the same shape again
        const bool square = x.shape[1] < 20;
        return Keep(net_.Linear(Name(), x.id, square ? x.shape[1] : 9));
      }
      default:
        return AddSample(x, On::kRows);
    }
  }

  int64_t scale_;
  RandomStream random_;
  uint32_t next_ = 0;
  int named_ = 0;
  int64_t batch_;
  Network net_;
  std::vector<Made> images_, rows_;
};

}  // namespace thimble::testing
