// SPDX-License-Identifier: Apache-2.0
//
// What tests of whole networks share: reproducible parameters and batches, and
// passes of a Session over them, in as many parts as its plan takes. One
// thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/testing.h"
#include "reference_net.h"
#include "thimble/graph.h"
#include "thimble/session.h"

namespace thimble::testing {

// Weights of the size that keeps activations near 1; scales near 1; biases and
// shifts away from their initial 0, so that their effect shows.
inline Tensors RandomParameters(const Model& model, uint64_t seed) {
  Tensors tensors;
  for (ValueId id : ParametersOf(model)) {
    const Value& value = model.graph.value(id);
    const Shape& shape = value.spec.shape;
    const bool scale =
        value.init.kind == Init::Kind::kConstant && value.init.value == 1.0f;
    const float size =
        shape.rank() < 2
            ? 0.5f
            : std::sqrt(3.0f / static_cast<float>(shape.elements_from(1)));
    std::vector<float> tensor(static_cast<size_t>(shape.elements()));
    kernels::testing::FillRandom<float>(tensor, seed * 1000 + id.i);
    for (float& element : tensor) {
      element = element * size + (scale ? 1.0f : 0.0f);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

inline Batch RandomBatch(const Model& model, int64_t count, uint64_t seed) {
  Batch batch;
  batch.count = count;
  const int64_t pixels =
      model.graph.value(model.ends.feeds[0].value).spec.shape.elements_from(1);
  const int64_t classes =
      model.graph.value(model.ends.outputs[0].value).spec.shape[1];
  const auto at = [seed](int64_t i, int64_t values) {
    const float unit = kernels::testing::TestValue(seed * 1000 + 999,
                                                   static_cast<uint64_t>(i));
    return std::min(
        static_cast<int64_t>((unit + 1) / 2 * static_cast<float>(values)),
        values - 1);
  };
  for (int64_t i = 0; i < count * pixels; ++i) {
    batch.images.push_back(static_cast<uint8_t>(at(i, 256)));
  }
  for (int64_t i = 0; i < count; ++i) {
    batch.labels.push_back(static_cast<int32_t>(at(-1 - i, classes)));
  }
  return batch;
}

// Puts parameters where training finds them. REQUIRES: session.Initialize was
// called (it sets the rest of the state).
inline void LoadParameters(const Tensors& parameters, Session& session) {
  const auto states = session.plan().parameters();
  ASSERT_EQ(states.size(), parameters.size());
  for (size_t k = 0; k < states.size(); ++k) {
    std::ranges::copy(parameters[k],
                      session.Floats(states[k].parameter).begin());
  }
}

// At most `count` rows, from `first` on.
inline Batch RowsOf(const Batch& batch, int64_t first, int64_t count) {
  const auto pixels = static_cast<int64_t>(batch.images.size()) / batch.count;
  Batch rows;
  rows.count = std::min(count, batch.count - first);
  rows.first = batch.first + first;
  const auto image = batch.images.begin() + first * pixels;
  rows.images.assign(image, image + rows.count * pixels);
  const auto label = batch.labels.begin() + first;
  rows.labels.assign(label, label + rows.count);
  return rows;
}

// Calls run(rows, first) for each part of `batch` that a session takes at a
// time; the mean loss and the sum of what was right.
template <typename F>
PassResult InParts(const Batch& batch, const Session& session, const F& run) {
  double loss = 0;
  double correct = 0;
  const int64_t size = session.plan().microbatch();
  for (int64_t first = 0; first < batch.count; first += size) {
    const Batch rows = RowsOf(batch, first, size);
    const PassResult result = run(rows, first);
    loss += static_cast<double>(result.loss) * static_cast<double>(rows.count) /
            static_cast<double>(batch.count);
    correct += result.metrics[0];
  }
  return {static_cast<float>(loss), {correct}};
}

inline PassResult Differentiate(const Batch& batch, Session& session) {
  return InParts(batch, session, [&](const Batch& rows, int64_t first) {
    std::ranges::copy(rows.images,
                      session.TrainFeed<uint8_t>("images").begin());
    std::ranges::copy(rows.labels,
                      session.TrainFeed<int32_t>("labels").begin());
    return session.Differentiate(
        {.first = first, .count = rows.count, .total = batch.count});
  });
}

inline PassResult Evaluate(const Batch& batch, Session& session) {
  return InParts(batch, session, [&](const Batch& rows, int64_t) {
    std::ranges::copy(rows.images,
                      session.EvaluateFeed<uint8_t>("images").begin());
    std::ranges::copy(rows.labels,
                      session.EvaluateFeed<int32_t>("labels").begin());
    return session.Evaluate(rows.count);
  });
}

}  // namespace thimble::testing
