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

// How many classes labels may name.
inline int64_t ClassesOf(const Model& model) {
  const Graph& graph = model.graph;
  if (!model.ends.outputs.empty()) {
    return graph.value(model.ends.outputs[0].value).spec.shape[1];
  }
  const Op& loss = graph.op(graph.value(model.ends.loss).producer);
  return graph.value(loss.inputs[1]).spec.shape[0];  // rows of a projection
}

inline Batch RandomBatch(const Model& model, int64_t count, uint64_t seed) {
  Batch batch;
  batch.count = count;
  const int64_t pixels =
      model.graph.value(model.ends.feeds[0].value).spec.shape.elements_from(1);
  const int64_t classes = ClassesOf(model);
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
    batch.tokens.push_back(
        static_cast<int32_t>(at(-1 - count - i, Batch::kVocabulary)));
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
  rows.sentence = batch.sentence;
  const auto image = batch.images.begin() + first * pixels;
  rows.images.assign(image, image + rows.count * pixels);
  const auto label = batch.labels.begin() + first;
  rows.labels.assign(label, label + rows.count);
  const auto token = batch.tokens.begin() + first;
  rows.tokens.assign(token, token + rows.count);
  return rows;
}

// Puts rows where a pass finds them, `feed(end)` being its feeds.
template <typename F>
void Feed(const Batch& rows, const Session& session, const Ends& ends,
          const F& feed) {
  for (const End& end : ends.feeds) {
    const Storage& storage =
        session.plan().graph().value(end.value).spec.storage;
    if (storage == DType::kU8) {
      std::ranges::copy(rows.images, feed(end, uint8_t()).begin());
    } else if (end.name == "labels") {
      std::ranges::copy(rows.labels, feed(end, int32_t()).begin());
    } else if (end.name.ends_with("_ends")) {
      std::ranges::copy(rows.Ends(), feed(end, int32_t()).begin());
    } else {
      std::ranges::copy(rows.tokens, feed(end, int32_t()).begin());
    }
  }
}
inline void FeedTraining(const Batch& rows, Session& session) {
  Feed(rows, session, session.plan().train_ends(),
       [&](const End& end, auto zero) {
         return session.TrainFeed<decltype(zero)>(end.name);
       });
}
inline void FeedEvaluation(const Batch& rows, Session& session) {
  Feed(rows, session, session.plan().evaluate_ends(),
       [&](const End& end, auto zero) {
         return session.EvaluateFeed<decltype(zero)>(end.name);
       });
}

// What a pass over them uses of each axis, in a step of `total` rows.
inline AxisParts PartsOf(const Batch& rows, const Session& session,
                         int64_t first, int64_t total) {
  AxisParts parts = {};
  const auto axes = session.plan().graph().axes();
  for (size_t a = 0; a < axes.size(); ++a) {
    parts[a] = {.first = first, .count = rows.count, .total = total};
    if (axes[a].name == "sentences") {
      parts[a].count = static_cast<int64_t>(rows.Ends().size());
    }
  }
  return parts;
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
    FeedTraining(rows, session);
    return session.Differentiate(PartsOf(rows, session, first, batch.count));
  });
}

inline PassResult Evaluate(const Batch& batch, Session& session) {
  return InParts(batch, session, [&](const Batch& rows, int64_t) {
    FeedEvaluation(rows, session);
    return session.Evaluate(PartsOf(rows, session, 0, rows.count));
  });
}

}  // namespace thimble::testing
