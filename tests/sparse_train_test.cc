// SPDX-License-Identifier: Apache-2.0
//
// Training with sparse weights, against dense ones: the same network whose
// weights, gradients and velocities are masked with the same patterns has the
// same losses, gradients and weights but for rounding, from rewiring to
// rewiring. And what holds after each rewiring.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/testing.h"
#include "sparse_pattern.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

constexpr int64_t kImages = 8;
constexpr float kRate = 0.05f;

// All forms of a convolution, and a linear map, without a kink: batch norms are
// all that is not linear.
Model SmoothModel() {
  Network net("smooth", kImages);
  ValueId x = net.Images({.channels = 3, .height = 32, .width = 32});
  const auto conv = [&](const std::string& name, ValueId of,
                        const ConvLayer& layer) {
    return net.BatchNorm(name + ".norm", net.Conv2d(name, of, layer));
  };
  x = conv("stem", x, {.channels = 16, .stride = 2});
  x = net.Add(x, conv("same", x, {.channels = 16}));
  x = net.Add(conv("half", x, {.channels = 32, .stride = 2}),
              conv("point", x,
                   {.channels = 32, .kernel = 1, .stride = 2, .padding = 0}));
  x = conv("wide", x, {.channels = 32});
  x = net.Linear("hidden", net.GlobalAveragePool(x), 24);
  auto model = net.Finish(net.Linear("head", x, 10));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

Model Wrn() {
  auto model = BuildModel(
      "wrn-10-1",
      {.batch = kImages, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// A plan and its session.
class Trained {
 public:
  Trained(const Model& model, const SparseWeights& sparse, int threads) {
    auto plan = MakePlan(
        model, {.optimizer = Sgd({.weight_decay = 1e-3f, .nesterov = true}),
                .sparse = sparse,
                .threads = threads});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, {});
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    session_->Initialize(1);
  }

  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }
  std::span<const ParameterState> parameters() const {
    return plan_->parameters();
  }

  bool IsSparse(size_t k) const {
    const ValueId weight = parameters()[k].parameter;
    return plan_->graph().value(weight).spec.storage.sparsity.has_value();
  }

  float Differentiate(const Dataset& data, int64_t step) {
    const auto images = session_->TrainFeed<uint8_t>("images");
    const auto labels = session_->TrainFeed<int32_t>("labels");
    const size_t bytes = images.size() / kImages;
    for (size_t i = 0; i < kImages; ++i) {
      const int64_t record = (step * kImages + static_cast<int64_t>(i)) % 1000;
      EXPECT_TRUE(data.Read(Split::kTrain, record,
                            images.subspan(i * bytes, bytes), &labels[i])
                      .ok());
    }
    return session_->Differentiate(kImages).loss;
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

// Which elements of each parameter are kept; all of those that are not sparse.
using Places = std::vector<std::vector<size_t>>;

Places PlacesNow(Trained& sparse) {
  Places places;
  for (const ParameterState& p : sparse.parameters()) {
    const ValueSpec& spec = sparse->plan().graph().value(p.parameter).spec;
    if (spec.storage.sparsity.has_value()) {
      const Pattern pattern = PatternOf(*sparse, spec.storage.sparsity->member);
      places.push_back(PlacesOf(pattern, spec.shape));
      continue;
    }
    std::vector<size_t>& all = places.emplace_back();
    for (size_t i = 0; i < static_cast<size_t>(spec.shape.elements()); ++i) {
      all.push_back(i);
    }
  }
  return places;
}

// Zero but for what is kept.
void Mask(std::span<float> values, const std::vector<size_t>& kept) {
  std::vector<float> masked(values.size());
  for (size_t i : kept) masked[i] = values[i];
  std::ranges::copy(masked, values.begin());
}

// A dense run that does what a sparse one does.
class Follower {
 public:
  Follower(const Model& model, Trained& sparse)
      : sparse_(sparse), dense_(model, {}, 1), places_(PlacesNow(sparse)) {}

  Trained& operator*() { return dense_; }
  size_t size() const { return places_.size(); }

  // Makes all state that of the sparse run, but weights, where `nudge` is not
  // 0, up to a unit in the last place beside it.
  void TakeState(uint64_t nudge) {
    const auto parameters = dense_.parameters();
    for (size_t k = 0; k < size(); ++k) {
      const ParameterState& from = sparse_.parameters()[k];
      Copy(k, from.parameter, parameters[k].parameter);
      Copy(k, from.state[0], parameters[k].state[0]);
      if (nudge == 0) continue;
      const std::span<float> weights = dense_->Floats(parameters[k].parameter);
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i] *= 1 + kUnit * kernels::testing::TestValue(nudge + k, i);
      }
    }
    const auto statistics = dense_->plan().statistics();
    for (size_t i = 0; i < statistics.size(); ++i) {
      std::ranges::copy(sparse_->Floats(sparse_->plan().statistics()[i]),
                        dense_->Floats(statistics[i]).begin());
    }
  }

  float Differentiate(const Dataset& data, int64_t step) {
    const float loss = dense_.Differentiate(data, step);
    for (size_t k = 0; k < size(); ++k) {
      Mask(dense_->Floats(dense_.parameters()[k].gradient), places_[k]);
    }
    return loss;
  }

  // The sparse run was rewired: what is new or gone is zero, and so is all
  // velocity of sparse weights with a whole reset.
  void Rewire(StateReset reset) {
    const Places before = std::exchange(places_, PlacesNow(sparse_));
    for (size_t k = 0; k < size(); ++k) {
      const ParameterState& p = dense_.parameters()[k];
      if (!sparse_.IsSparse(k)) continue;
      std::vector<size_t> survivors;
      std::ranges::set_intersection(Sorted(before[k]), Sorted(places_[k]),
                                    std::back_inserter(survivors));
      Mask(dense_->Floats(p.parameter), survivors);
      if (reset == StateReset::kWhole) survivors.clear();
      Mask(dense_->Floats(p.state[0]), survivors);
    }
  }

  // A value of the sparse run's parameter k, as a dense one would be.
  std::vector<float> Dense(size_t k, ValueId of) {
    const ValueId weight = dense_.parameters()[k].parameter;
    return Scattered(sparse_->Floats(of), places_[k],
                     dense_->Floats(weight).size());
  }

 private:
  static constexpr float kUnit = std::numeric_limits<float>::epsilon();

  static std::vector<size_t> Sorted(std::vector<size_t> places) {
    std::ranges::sort(places);
    return places;
  }
  void Copy(size_t k, ValueId from, ValueId to) {
    std::ranges::copy(Dense(k, from), dense_->Floats(to).begin());
  }

  Trained& sparse_;
  Trained dense_;
  Places places_;
};

// Relative to the second.
double Distance(std::span<const float> a, std::span<const float> b) {
  double off = 0, norm = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    off += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(off / (norm > 0 ? norm : 1));
}

// How far a sparse run may be from a dense one that computes the same in
// another order says a second dense one, whose weights are the first one's but
// for less than a rounding: each rounding of the sums in between is of that
// size. A few times as far, since it is a random number on both sides.
constexpr double kSlack = 4;
constexpr double kEps = std::numeric_limits<float>::epsilon();

bool IsWithin(double distance, double yardstick) {
  return distance <= kSlack * std::max(yardstick, kEps);
}

class SparseOracle {
 public:
  SparseOracle(const Model& model, const SparseWeights& weights, int threads)
      : sparse_(model, weights, threads),
        dense_(model, sparse_),
        nudged_(model, sparse_) {
    auto data = OpenDataset("synthetic-cifar", {});
    EXPECT_TRUE(data.ok());
    data_ = *std::move(data);
  }

  // Each 25 steps a rewiring, each five the dense runs begin again where the
  // sparse one is: a network's training doubles a difference every few steps,
  // and the same network's would be another one at the end. Not right behind a
  // rewiring, which would not be compared.
  void Train(int64_t steps) {
    RewireOptions rewire{.threshold = 1e-2f, .target = 300};
    for (int64_t step = 0; step < steps; ++step) {
      if (step % 5 == 0) {
        dense_.TakeState(0);
        nudged_.TakeState(1000 + static_cast<uint64_t>(step));
      }
      bool is_within = Differentiate(step);
      const bool is_due = step % 25 == 22;
      if (is_due) {
        rewire.reset = step % 50 == 22 ? StateReset::kWhole  //
                                       : StateReset::kNewBlocks;
        sparse_->RewireAtUpdate(rewire);
      }
      for (Trained* t : {&sparse_, &*dense_, &*nudged_}) (*t)->Update(kRate);
      ASSERT_EQ(sparse_->rewired().has_value(), is_due);
      if (is_due) {
        ASSERT_EQ(sparse_->rewired()->regrown, 0);
        pruned_.push_back(sparse_->rewired()->pruned);
        rewire.threshold = sparse_->rewired()->threshold;
        dense_.Rewire(rewire.reset);
        nudged_.Rewire(rewire.reset);
      }
      is_within = StateIsWithin() && is_within;
      if (!is_within) beyond_.push_back(step);
    }
  }

  const std::vector<int64_t>& pruned() const { return pruned_; }
  // Steps that were further from the dense run than the yardstick allows.
  const std::vector<int64_t>& beyond() const { return beyond_; }
  // The furthest from the dense run that any tensor was.
  double furthest() const { return furthest_; }
  // The same as a multiple of the furthest that its yardstick was.
  double furthest_by_yardstick() const {
    double most = 0;
    for (const auto& [value, far] : far_) {
      most = std::max(most, far.distance / std::max(far.yardstick, kEps));
    }
    return most;
  }
  float first_loss() const { return losses_.front(); }
  float last_loss() const { return losses_.back(); }

 private:
  bool Differentiate(int64_t step) {
    const float loss = sparse_.Differentiate(*data_, step);
    losses_.push_back(loss);
    const float dense = dense_.Differentiate(*data_, step);
    const float nudged = nudged_.Differentiate(*data_, step);
    bool is_within = IsWithin(std::abs(loss - dense) / dense,
                              std::abs(nudged - dense) / dense);
    for (size_t k = 0; k < dense_.size(); ++k) {
      is_within = ValueIsWithin(
                      k, [](const ParameterState& p) { return p.gradient; }) &&
                  is_within;
    }
    return is_within;
  }

  bool StateIsWithin() {
    bool is_within = true;
    for (size_t k = 0; k < dense_.size(); ++k) {
      for (const auto& of : {&ParameterOf, &VelocityOf}) {
        is_within = ValueIsWithin(k, of) && is_within;
      }
    }
    return is_within;
  }
  static ValueId ParameterOf(const ParameterState& p) { return p.parameter; }
  static ValueId VelocityOf(const ParameterState& p) { return p.state[0]; }

  template <typename Of>
  bool ValueIsWithin(size_t k, const Of& of) {
    const ValueId v = of((*dense_).parameters()[k]);
    const std::span<const float> dense = (*dense_)->Floats(v);
    const double distance =
        Distance(dense_.Dense(k, of(sparse_.parameters()[k])), dense);
    const double yardstick = Distance((*nudged_)->Floats(v), dense);
    furthest_ = std::max(furthest_, distance);
    Far& far = far_[v.i];
    far.distance = std::max(far.distance, distance);
    far.yardstick = std::max(far.yardstick, yardstick);
    return IsWithin(distance, yardstick);
  }

  std::unique_ptr<Dataset> data_;
  Trained sparse_;
  Follower dense_, nudged_;
  std::vector<float> losses_;
  std::vector<int64_t> pruned_, beyond_;
  double furthest_ = 0;
  struct Far {
    double distance = 0, yardstick = 0;
  };
  std::map<uint32_t, Far> far_;  // of the dense run's values
};

void ExpectLearnedAndRewired(const SparseOracle& oracle) {
  EXPECT_LT(oracle.last_loss(), oracle.first_loss() / 2);
  ASSERT_EQ(oracle.pruned().size(), 12u);
  for (const int64_t pruned : oracle.pruned()) EXPECT_GT(pruned, 0);
}

TEST(SparseTraining, IsThatOfDenseWeightsThatAreMasked) {
  const Model model = SmoothModel();
  const struct {
    SparseWeights weights;
    int threads;
  } cases[] = {{{.nonzero = 0.3, .index = IndexCodec::kPacked}, 1},
               {{.nonzero = 0.2, .block = {2, 2}}, 2},
               {{.nonzero = 0.1, .index = IndexCodec::kBitmap}, 1}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.weights.nonzero);
    SparseOracle oracle(model, c.weights, c.threads);
    oracle.Train(300);
    ExpectLearnedAndRewired(oracle);
    EXPECT_LE(oracle.furthest_by_yardstick(), kSlack);
    // At a single step both are random numbers.
    EXPECT_LE(oracle.beyond().size(), 30u);
  }
}

// With what is fused. Where a ReLU's input is a rounding away from its kink, it
// may be on either side: in few steps. Then the gradient lacks what one pixel
// of one image adds to it, which is less than an image does.
TEST(SparseTraining, IsThatOfDenseWeightsButForKinks) {
  SparseOracle oracle(Wrn(), {.nonzero = 0.3}, 1);
  oracle.Train(300);
  ExpectLearnedAndRewired(oracle);
  EXPECT_LE(oracle.beyond().size(), 30u);
  EXPECT_LT(oracle.furthest(), 1.0 / kImages);
}

}  // namespace
}  // namespace thimble::testing
