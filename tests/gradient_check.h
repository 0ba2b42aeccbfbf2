// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a Session compared with those of the scalar interpreter
// (reference_net.h) at random points of a network. One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "random_point.h"
#include "reference_backward.h"
#include "reference_net.h"
#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {

// A point of a network and what is true there.
struct ExactPoint {
  Tensors parameters;
  Batch batch;
  LossAndGradients exact;
  // Errors that f32 arithmetic may make; a gradient's is that of its L2 norm.
  double loss_bound = 0;
  std::vector<double> gradient_bounds;
};

inline double Distance(const std::vector<double>& a,
                       const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// How wrong f32 may be is a property of the network at this point: sums cancel,
// batch norms divide by small deviations. So it is measured, not assumed: from
// samples of a backward pass with every value and gradient disturbed by up to
// one f32 epsilon comes the deviation of each result. A kernel rounds more than
// once for each element that it makes, but errors that go both ways grow with
// the root of their number only: 8 deviations are 4 with four roundings of
// each. One rounding of the result itself comes on top.
inline void SetBounds(const Model& model, ExactPoint& point) {
  constexpr double kDeviations = 8;
  constexpr uint64_t kSamples = 12;
  const double eps = std::numeric_limits<float>::epsilon();
  const size_t tensors = point.parameters.size();
  double loss = 0;  // sums of squares
  std::vector<double> gradients(tensors);
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    const LossAndGradients got =
        ReferenceBackward(model, point.batch, eps, sample)
            .Run(point.parameters);
    loss += std::pow(got.loss - point.exact.loss, 2);
    for (size_t k = 0; k < tensors; ++k) {
      gradients[k] +=
          std::pow(Distance(got.gradients[k], point.exact.gradients[k]), 2);
    }
  }
  const auto bound = [&](double squares, double size) {
    return kDeviations * std::sqrt(squares / kSamples) + eps * size;
  };
  point.loss_bound = bound(loss, point.exact.loss);
  for (size_t k = 0; k < tensors; ++k) {
    const std::vector<double>& gradient = point.exact.gradients[k];
    point.gradient_bounds.push_back(
        bound(gradients[k],
              Distance(gradient, std::vector<double>(gradient.size()))));
  }
}

// A wrong backward pass would make the bounds wide. Undisturbed it must be
// right to f64's roundings, which are some 2^-29 of f32's; 2^-20 leaves room
// for its long plain sums. All by the largest bound: gradients that are zero in
// theory come out as roundings of the others.
inline void ExpectUndisturbedBackwardIsExact(const Model& model,
                                             const ExactPoint& point) {
  const LossAndGradients got =
      ReferenceBackward(model, point.batch, 0, 0).Run(point.parameters);
  const double bound = 0x1p-20 * std::ranges::max(point.gradient_bounds);
  for (size_t k = 0; k < got.gradients.size(); ++k) {
    EXPECT_LE(Distance(got.gradients[k], point.exact.gradients[k]), bound)
        << "of parameter " << k;
  }
}

// False where a value comes too close to a kink for f32 to be sure of its side.
// REQUIRES: parameters and batch are set; sets the rest.
inline bool SetExact(const Model& model, ExactPoint& point) {
  constexpr double kFarFromKinks = 1e-4;
  ReferenceNet<std::complex<double>> net(model, point.batch);
  net.Set(point.parameters);
  net.Run();
  if (net.kink_margin() < kFarFromKinks) return false;
  point.exact = ComplexStep(model, net);
  SetBounds(model, point);
  ExpectUndisturbedBackwardIsExact(model, point);
  return true;
}

// Adds what is true of a part of `sum`'s batch, which counts by its rows. Each
// addition of a part rounds once more: half an epsilon of what is added up.
inline void AddPart(const ExactPoint& part, ExactPoint& sum) {
  const double share = static_cast<double>(part.batch.count) /
                       static_cast<double>(sum.batch.count);
  const bool whole = part.batch.count == sum.batch.count;
  const double eps = std::numeric_limits<float>::epsilon();
  sum.exact.loss += share * part.exact.loss;
  sum.loss_bound += share * part.loss_bound;
  const size_t tensors = part.exact.gradients.size();
  sum.exact.gradients.resize(tensors);
  sum.gradient_bounds.resize(tensors);
  for (size_t k = 0; k < tensors; ++k) {
    const std::vector<double>& gradient = part.exact.gradients[k];
    std::vector<double>& total = sum.exact.gradients[k];
    total.resize(gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      total[i] += share * gradient[i];
    }
    const double size = Distance(total, std::vector<double>(total.size()));
    sum.gradient_bounds[k] +=
        share * part.gradient_bounds[k] + (whole ? 0 : eps / 2 * size);
  }
}

// Parameters and a batch, made from `seed` and, where a value comes too close
// to a kink, from a next one. Batch norms see `rows` rows at a time.
inline ExactPoint FindPoint(const Model& model, int64_t count, uint64_t seed,
                            int64_t rows) {
  constexpr uint64_t kAttempts = 300;
  for (uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    ExactPoint point;
    point.parameters = RandomParameters(model, seed + attempt);
    point.batch = RandomBatch(model, count, seed + attempt);
    // So that no sentence goes on in another part.
    point.batch.sentence = std::min(point.batch.sentence, rows);
    bool found = true;
    for (int64_t first = 0; found && first < count; first += rows) {
      ExactPoint part;
      part.parameters = point.parameters;
      part.batch = RowsOf(point.batch, first, rows);
      found = SetExact(model, part);
      if (found) AddPart(part, point);
    }
    if (found) return point;
  }
  ADD_FAILURE() << "every seed from " << seed << " on meets a kink";
  return {};
}

inline ExactPoint FindPoint(const Model& model, int64_t count, uint64_t seed) {
  return FindPoint(model, count, seed, count);
}

// The largest error seen, in units of its bound: shown by tests, to see that
// bounds are neither loose nor luck.
inline double ExpectGradientsAt(const ExactPoint& point, Session& session) {
  const Plan& plan = session.plan();
  session.Initialize(kReferenceSeed);
  LoadParameters(point.parameters, session);
  const PassResult result = Differentiate(point.batch, session);
  EXPECT_NEAR(result.loss, point.exact.loss, point.loss_bound);
  double worst = 0;
  for (size_t k = 0; k < plan.parameters().size(); ++k) {
    const ParameterState& state = plan.parameters()[k];
    const std::string& name = plan.graph().value(state.parameter).name;
    // What the loss does not depend on has no gradient to compare, but then the
    // exact one is zero.
    std::vector<double> got(point.exact.gradients[k].size());
    if (state.gradient.valid()) {
      std::ranges::copy(session.Floats(state.gradient), got.begin());
    }
    const double error = Distance(got, point.exact.gradients[k]);
    EXPECT_LE(error, point.gradient_bounds[k]) << "gradient of " << name;
    if (error > 0) worst = std::max(worst, error / point.gradient_bounds[k]);
  }
  return worst;
}

// On every SIMD target, with and without sharing bytes, alone and threaded.
inline double ExpectGradients(const Model& model, const ExactPoint& point,
                              PlanOptions options = {}) {
  double worst = 0;
  if (point.exact.gradients.empty()) return worst;
  for (const bool inplace : {true, false}) {
    options.inplace = inplace;
    options.threads = inplace ? 1 : 2;
    const Result<Plan> plan = MakePlan(model, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    auto session = Session::Create(*plan, {.poison = true});
    EXPECT_TRUE(session.ok()) << session.status().message();
    SCOPED_TRACE(inplace ? "in place" : "nothing in place, 2 threads");
    kernels::testing::ForEachTarget(
        [&] { worst = std::max(worst, ExpectGradientsAt(point, **session)); });
  }
  return worst;
}

}  // namespace thimble::testing
